"""An encoder whose invariance is chosen when it is used, whatever it was trained for.

Shapes: B images, F numbers of all its depths, D or J of a space.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from mast.augment import OPERATORS, named_operators
from mast.core.arguments import checked
from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.run import provenance
from mast.core.tensors import check_finite, read_metadata, read_tensors, write_tensors
from mast.data import CanvasSet
from mast.encoders.fingerprint import fingerprint
from mast.encoders.load import ADAPTED
from mast.invariance.subspaces import Space, Subspaces
from mast.models import Depths, Encoder, load_encoder
from mast.models.encoders import copied

VERSION = 4
NOISE = "noise"  # what its file calls the features of `Depths.noise`
SAME = 0.01  # as a share of each depth's, by which they may differ when it is opened
AGAIN = "run `mast adapt` again"


@final
class Adapted(nn.Module):
    """An encoder and how operators move its features: (B, channels, H, W) to (B, F or J).

    `operators` can be ignored or matched; `size` is the side of the views in pixels.
    """

    def __init__(self, depths: Depths, subspaces: Subspaces) -> None:
        super().__init__()
        self.depths = depths
        self.subspaces = subspaces
        self.operators = tuple(name for name in OPERATORS if name in subspaces.factors)
        self.size = depths.size
        self._spaces: dict[tuple[tuple[str, ...], tuple[str, ...]], Space] = {}

    @property
    def encoder(self) -> nn.Module:
        """The encoder itself, as it was adapted."""
        return self.depths.encoder

    @checked
    def forward(
        self,
        images_BCHW: Tensor,
        ignore: str | Sequence[str] | None = (),
        match: str | Sequence[str] | None = (),
    ) -> Tensor:
        """Features in float32, to be compared by cosine.

        Args:
            images_BCHW: In [0, 1], best of side `size`.
            ignore: Operators to which the features are to be invariant, by name, or properties such
                as "color", which stand for all operators that change them; "all" for all.
            match: Likewise, by what these change images are to be compared, and by nothing else.
        """
        space = self.space(ignore, match).to(images_BCHW.device)
        features_BF = self.depths(images_BCHW)
        with torch.autocast(features_BF.device.type, enabled=False):
            projected: Tensor = space(features_BF)
        return projected

    @entry()
    def space(
        self,
        ignore: str | Sequence[str] | None = (),
        match: str | Sequence[str] | None = (),
    ) -> Space:
        """The space in which to compare images, for what is to be ignored and matched."""
        ignored, matched = tuple(self.named(ignore)), tuple(self.named(match))
        if (ignored, matched) not in self._spaces:
            space = (
                self.subspaces.matching(matched, ignored)
                if matched
                else self.subspaces.ignoring(ignored)
            )
            self._spaces[ignored, matched] = space
        return self._spaces[ignored, matched]

    @entry()
    def named(self, chosen: str | Sequence[str] | None) -> list[str]:
        """The operators that are meant, each once."""
        return named_operators(chosen, self.operators)


def tensors_of(adapted: Adapted) -> dict[str, Tensor]:
    """What its file holds."""
    subspaces = adapted.subspaces
    return {f"factors/{name}": moves_RF for name, moves_RF in subspaces.factors.items()} | {
        "mean": subspaces.mean_F,
        "scale": subspaces.scale_F.clone(),
    }


def save_adapted(adapted: Adapted, folder: Path, images: CanvasSet, data: str, seed: int) -> None:
    """Write subspaces into a folder, with what they were found on; the encoder is not written."""
    described = {
        "version": VERSION,
        "size": adapted.size,
        "layers": list(adapted.depths.layers[:-1]),
        "encoder": _of(adapted.encoder),
        "images": len(images),
        "data": data,
        "fingerprint": images.fingerprint,
        "seed": seed,
        "provenance": provenance(),
    }
    tensors = tensors_of(adapted) | {NOISE: _of_noise(adapted.depths)}
    write_tensors(folder / ADAPTED, tensors, {"subspaces": described})


@entry(draws=True)
def load_adapted(path: str | Path, encoder: nn.Module | None = None) -> Adapted:
    """Open what `mast adapt` wrote.

    Args:
        path: The folder.
        encoder: The module that was adapted, if it is one of the user's own; it is copied.

    Returns:
        The encoder with its subspaces, in evaluation mode, on the CPU.

    Raises:
        UserError: There is no such file, it is damaged, of another version, or of another encoder,
            which other code of a module with the same weights is, too.
    """
    return open_adapted(path, None if encoder is None else copied(encoder).cpu())


def open_adapted(path: str | Path, encoder: nn.Module | None = None) -> Adapted:
    """As `load_adapted`, but with the module itself, not a copy."""
    file = Path(path) / ADAPTED
    if not file.is_file():
        raise UserError(f"{path} has no {ADAPTED}: `mast adapt` writes it")
    tensors, header = read_tensors(file, AGAIN)
    metadata = read_metadata(header).get("subspaces")
    if not isinstance(metadata, dict) or metadata.get("version") != VERSION:
        raise UserError(f"{file} was written by another version of mast: {AGAIN}")
    check_finite(file, tensors)
    if encoder is None and not (file.parent / "encoder.safetensors").is_file():
        raise UserError(
            f"{path} is of a module of your own: give it, as in "
            "mast.load_adapted(path, encoder=module)"
        )
    encoder = load_encoder(file.parent) if encoder is None else encoder
    if _of(encoder) != metadata.get("encoder"):
        raise UserError(f"{file} is of another encoder than the one that is given: {AGAIN}")
    depths = Depths(encoder, metadata["size"], metadata["layers"]).eval()
    moves = {name.removeprefix("factors/"): values
             for name, values in tensors.items() if name.startswith("factors/")}  # fmt: skip
    known = Subspaces(tensors["mean"], tensors["scale"], moves)
    parts = [each_2F.split(depths.widths, dim=1) for each_2F in (_of_noise(depths), tensors[NOISE])]
    same = [float((now - then).norm()) <= SAME * float(then.norm())
            for now, then in zip(*parts, strict=True)]  # fmt: skip
    if not all(same):  # other code, or random layers
        raise UserError(f"{file} is of an encoder that gives other features: {AGAIN}")
    return Adapted(depths, known).eval()


@torch.no_grad()
def _of_noise(depths: Depths) -> Tensor:
    """Features of images that are always the same."""
    return depths(depths.noise()).cpu()


def _of(encoder: nn.Module) -> str:
    """A hash of an encoder."""
    return fingerprint(encoder, encoder.describe() if isinstance(encoder, Encoder) else None)
