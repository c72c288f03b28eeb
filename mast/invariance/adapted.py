"""An encoder whose invariances are chosen at use, however it was trained.

Shapes: B images, F features of all stages, D or J dimensions of a space.
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
from mast.models import Encoder, load_encoder
from mast.models.depths import Depths
from mast.models.encoders import copied

VERSION = 4
NOISE = "noise"  # key of the features of `Depths.noise` in the file
SAME = 0.01  # relative difference of these features that loading accepts
AGAIN = "run `mast adapt` again"


@final
class Adapted(nn.Module):
    """An encoder with its subspaces: (B, channels, H, W) to (B, F or J).

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
        """The adapted encoder itself."""
        return self.depths.encoder

    @checked
    def forward(
        self,
        images_BCHW: Tensor,
        ignore: str | Sequence[str] | None = (),
        match: str | Sequence[str] | None = (),
    ) -> Tensor:
        """Features in float32, to compare by cosine.

        Args:
            images_BCHW: In [0, 1], best of side `size`.
            ignore: Operators to be invariant to, or properties such as "color", which stand for all
                operators that change them; "all" for all.
            match: Operators or properties to compare images by, and nothing else.
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
        """The space in which to compare images with these choices."""
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
        """The operators that a choice stands for, each once."""
        return named_operators(chosen, self.operators)


def tensors_of(adapted: Adapted) -> dict[str, Tensor]:
    """Tensors to save."""
    subspaces = adapted.subspaces
    return {f"factors/{name}": moves_RF for name, moves_RF in subspaces.factors.items()} | {
        "mean": subspaces.mean_F,
        "scale": subspaces.scale_F.clone(),
    }


def save_adapted(adapted: Adapted, folder: Path, images: CanvasSet, data: str, seed: int) -> None:
    """Write subspaces into a folder, with a record of the images; the encoder is not written."""
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
    """Load the folder of `mast adapt`.

    Args:
        path: The folder.
        encoder: The adapted module, if it is your own; it is copied.

    Returns:
        The encoder with its subspaces, in evaluation mode, on the CPU.

    Raises:
        UserError: The file is missing, damaged, of another version, or of another encoder; a
            module with equal weights but other code counts as another encoder.
    """
    file = Path(path) / ADAPTED
    if not file.is_file():
        raise UserError(f"{path}: expected {ADAPTED}, which `mast adapt` writes, got none")
    tensors, header = read_tensors(file, AGAIN)
    metadata = read_metadata(header).get("subspaces")
    if not isinstance(metadata, dict) or metadata.get("version") != VERSION:
        raise UserError(f"{file} was written by another version of mast: {AGAIN}")
    check_finite(file, tensors)
    if encoder is None and not (file.parent / "encoder.safetensors").is_file():
        raise UserError(
            f"{path} belongs to your own module; pass it, as in "
            "mast.load_adapted(path, encoder=module)"
        )
    encoder = load_encoder(file.parent) if encoder is None else copied(encoder).cpu()
    if _of(encoder) != metadata.get("encoder"):
        raise UserError(f"{file} belongs to another encoder: {AGAIN}")
    depths = Depths(encoder, metadata["size"], metadata["layers"]).eval()
    moves = {name.removeprefix("factors/"): values
             for name, values in tensors.items() if name.startswith("factors/")}  # fmt: skip
    known = Subspaces(tensors["mean"], tensors["scale"], moves)
    parts = [each_2F.split(depths.widths, dim=1) for each_2F in (_of_noise(depths), tensors[NOISE])]
    same = [float((now - then).norm()) <= SAME * float(then.norm())
            for now, then in zip(*parts, strict=True)]  # fmt: skip
    if not all(same):  # its code changed, or it has random layers
        raise UserError(f"{file} does not reproduce this encoder's features: {AGAIN}")
    return Adapted(depths, known).eval()


@torch.no_grad()
def _of_noise(depths: Depths) -> Tensor:
    """Features of fixed test images."""
    return depths(depths.noise()).cpu()


def _of(encoder: nn.Module) -> str:
    """Hash of an encoder."""
    return fingerprint(encoder, encoder.describe() if isinstance(encoder, Encoder) else None)
