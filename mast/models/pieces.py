"""The pieces of a jigsaw of 3 x 3 cells.

Shapes: B images, S pieces of an image, C channels, P pixels along a side of a piece.
"""

import torch
from torch import Tensor

SIDE = 3  # cells along each side of an image
PIECES = SIDE**2


def side_of_piece(size: int) -> int:
    """Of a piece of an image of this side, in pixels: three quarters of its cell."""
    return round(size / 4)


def pieces_of(images_BCHW: Tensor, place_BS2: Tensor) -> Tensor:
    """Squares out of the 3 x 3 cells of square images, row by row.

    Args:
        images_BCHW: Images of 3 pixels and more a side, H.
        place_BS2: Where in its cell each lies, down and right, in [0, 1).

    Returns:
        (B, S, C, P, P), where P is a quarter of H.
    """
    size = images_BCHW.shape[-1]
    cell, side = size // SIDE, side_of_piece(size)
    corner_S2 = cell * torch.cartesian_prod(*2 * [torch.arange(SIDE, device=place_BS2.device)])
    start_BS2 = corner_S2 + (place_BS2 * (cell - side + 1)).long()
    within_P = torch.arange(side, device=place_BS2.device)
    rows_BSP, columns_BSP = (start_BS2[..., axis, None] + within_P for axis in range(2))
    image_B = torch.arange(len(images_BCHW), device=place_BS2.device)[:, None, None, None]
    pieces_BSPPC = images_BCHW.permute(0, 2, 3, 1)[
        image_B, rows_BSP[..., :, None], columns_BSP[..., None, :]
    ]
    return pieces_BSPPC.permute(0, 1, 4, 2, 3)
