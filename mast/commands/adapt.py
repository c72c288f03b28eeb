"""Measure how operators move the features of an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mast.commands.common import command, or_default
from mast.core.kinds import Device, EncoderLike

if TYPE_CHECKING:
    from mast.invariance.measure import Adaptation


@command
def adapt(
    data: str | Path,
    encoder: EncoderLike | None = None,
    images: int = 300,
    out: str | Path | None = None,
    size: int | None = None,
    layers: str | Sequence[str] | None = None,
    operators: str | Sequence[str] | None = None,
    device: Device = "auto",
    weights: str | Path | None = None,
    download: bool = False,
    untrained: bool = False,
    seed: int = 0,
    max_broken: float = 1.0,
) -> Adaptation:
    """Measure how operators move the features of an encoder, so that its invariance can be chosen.

    Encodes one augmented copy of each image per operator. Needs no labels and trains nothing. Pass
    the folder as `--encoder` to `mast neighbours`, `outliers`, `embed` or `fit`, with `--ignore` or
    `--match`.

    Args:
        data: Images like those that will be compared.
        images: Images to use at most; 10 are needed, 30 already useful.
        out: The folder to write; `runs/<name>-adapted` by default. In Python a module is written
            only if this is given.
        layers: Submodules whose outputs are used in addition to the encoder's; by default the last
            one of each feature-map size, or some blocks of a transformer.
        operators: Operators or properties to measure; only these can be ignored or matched later.
            All by default.
        seed: Seed for sampling images, for the operators and for random weights.

    Returns:
        The adapted encoder and its folder.

    Raises:
        UserError: No such encoder, operator or layer; fewer than 10 images; features that are not
            finite or do not vary; a folder that cannot be written.
    """
    encoder = or_default(encoder, data)
    from mast.encoders.load import EncoderOptions
    from mast.invariance.measure import adapt as measure

    options = EncoderOptions(encoder, size, weights, download, untrained, seed)
    return measure(data, options, images, out, layers, operators, device, max_broken)
