"""Patches of images, which a ViT sees.

Shapes: B images, L patches of an image, S of them shown, C features of the encoder, D dimensions of
a position.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.models.encoders import Encoder


class ShownPatches(nn.Module):
    """In a ViT of timm, in place of its patch dropout: the patches that are shown, or all.

    It has no weights, so that the encoder is saved and loaded as without it.

    Args:
        encoder: A ViT, in which this is put.

    Attributes:
        side: Of a patch in pixels.
        grid: Patches along each side of an image.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        model = encoder.model
        kinds = {kind.__name__ for kind in type(model).__mro__}
        embed: Any = getattr(model, "patch_embed", None)
        if "VisionTransformer" not in kinds or type(embed).__name__ != "PatchEmbed":
            raise UserError(
                "encoder.name: expected a ViT of timm, whose patches can be hidden, such as "
                f"timm:vit_small_patch16_224, got {encoder.config.name!r}"
            )
        self.side: int = embed.patch_size[0]
        self.grid: int = encoder.size // self.side
        if (self.grid * self.side, self.grid**2) != (encoder.size, embed.num_patches):
            raise UserError(
                f"size: expected images that square patches fill, got {encoder.size} pixels and "
                f"patches of {embed.patch_size}"
            )
        self._prefix: int = model.num_prefix_tokens
        self._shown_BS: Tensor | None = None
        model.patch_drop = self

    def forward(self, tokens_BLC: Tensor) -> Tensor:
        """Class and register tokens, and the patches that are shown."""
        if self._shown_BS is None:
            return tokens_BLC
        first, patches = tokens_BLC[:, : self._prefix], tokens_BLC[:, self._prefix :]
        return torch.cat([first, picked(patches, self._shown_BS)], dim=1)

    @contextmanager
    def only(self, shown_BS: Tensor) -> Iterator[None]:
        """Show the patches of these positions, of each image as many."""
        self._shown_BS = shown_BS
        try:
            yield
        finally:
            self._shown_BS = None


def picked(tokens_BLC: Tensor, position_BS: Tensor) -> Tensor:
    """The tokens at some positions of each image, (B, S, C)."""
    return tokens_BLC.gather(1, position_BS[..., None].expand(-1, -1, tokens_BLC.shape[2]))


def patches_of(images_BCHW: Tensor, side: int) -> Tensor:
    """Images as rows of patches, (B, L, side² C), pixel by pixel and then by channel."""
    count, channels, height, width = images_BCHW.shape
    rows, columns = height // side, width // side
    parts = images_BCHW.reshape(count, channels, rows, side, columns, side)
    return parts.permute(0, 2, 4, 3, 5, 1).reshape(count, rows * columns, -1)


def positions(grid: int, dim: int) -> Tensor:
    """Sines and cosines of the places of grid² patches, (L, D); D is a multiple of four.

    Reference:
        MAE (He et al., CVPR 2022), appendix A.1; facebookresearch/mae, util/pos_embed.py.
    """
    quarter = dim // 4
    frequency_Q = 10_000.0 ** (-torch.arange(quarter, dtype=torch.float64) / quarter)
    place_G = torch.arange(grid, dtype=torch.float64)
    across_GQ = place_G[:, None] * frequency_Q
    turned_GH = torch.cat([across_GQ.sin(), across_GQ.cos()], dim=1)  # of one axis
    columns = turned_GH.repeat(grid, 1)
    rows = turned_GH.repeat_interleave(grid, dim=0)
    return torch.cat([columns, rows], dim=1).float()
