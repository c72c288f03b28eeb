"""Measure how operators move the features of an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast, final

from mast.commands.common import ENCODER, command, or_default
from mast.core.checkpoint import check_writable
from mast.core.errors import UserError
from mast.core.files import out_folder, refuse_others, short_name
from mast.core.kinds import Device, EncoderLike
from mast.core.table import Shown, TextTable

if TYPE_CHECKING:
    from mast.invariance.adapted import Adapted


@final
@dataclass(frozen=True, repr=False)
class Adaptation(Shown):
    """What `mast adapt` found.

    Attributes:
        path: The folder to pass as `--encoder` to other commands; None if not written.
        adapted: The encoder with its subspaces; usable wherever an encoder is. Without a choice, it
            returns its last map.
        images: Number of images measured.
        left_out: Operators that did not change these images.
    """

    path: Path | None
    adapted: Adapted
    images: int
    left_out: tuple[str, ...] = ()

    def shown(self) -> list[TextTable | str]:
        """How far each operator moves an image, and along how many axes."""
        from mast.augment import OPERATORS

        table = TextTable(title=f"How operators move {self.images} images")
        table.add_column("operator")
        for column in ("changes", "mean square displacement, % of variance", "axes of 90 % of it"):
            table.add_column(column, justify="left" if column == "changes" else "right")
        depths = len(self.adapted.depths.layers)
        for name, moves_RF in self.adapted.subspaces.factors.items():
            value_R = moves_RF.square().sum(dim=1)
            axes = int((value_R.cumsum(0) < 0.9 * value_R.sum()).sum()) + 1
            share = f"{100 * float(value_R.sum()) / depths:.0f}"
            table.add_row(name, OPERATORS[name].changes, share, str(axes))
        lines = list[TextTable | str]([table])
        if self.left_out:
            lines.append(f"left out, as they did not change the images: {', '.join(self.left_out)}")
        if depths == 1:
            lines.append("--layers: only the encoder's output was measured; --match works better "
                         "with several layers")  # fmt: skip
        return lines


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
    """
    encoder = or_default(encoder, data)
    from torch import nn

    from mast.core.compute import Compute
    from mast.core.launch import find_device
    from mast.data import DataConfig, open_photos
    from mast.encoders.load import ADAPTED, frozen, load
    from mast.invariance import measure
    from mast.invariance.adapted import save_adapted
    from mast.models import Encoder, save_encoder
    from mast.models.depths import Depths

    if images < measure.FEWEST:
        raise UserError(f"images: expected {measure.FEWEST} or more, got {images}")
    loaded = load(encoder, size, weights, download, untrained, seed)
    whole = measure.at_depths(loaded, encoder, layers)
    depths = cast(Depths, whole.module)
    named = measure.operators_of(operators, depths.channels)
    folder = None
    if out is not None or not isinstance(encoder, nn.Module):
        folder = out_folder(out or Path("runs") / short_name(f"{loaded.folder.name}-adapted"))
        ours = (ADAPTED, ENCODER) if (folder / ADAPTED).exists() else ()
        refuse_others(folder, ours, "mast adapt")
        check_writable(folder)
    canvases = open_photos(DataConfig(str(data), max_broken=1.0), loaded.size, depths)
    some = measure.some_of(canvases, images, seed)
    compute = Compute(find_device(device))
    adapted = measure.moved(frozen(whole, encoder, compute), some, named, seed)
    if folder is not None:
        (folder / ENCODER).unlink(missing_ok=True)  # an earlier encoder's
        save_adapted(adapted, folder, some, str(data), seed)
        if isinstance(depths.encoder, Encoder):
            save_encoder(depths.encoder, folder / ENCODER)
    left_out = tuple(name for name in named if name not in adapted.operators)
    return Adaptation(folder, adapted, len(some), left_out)
