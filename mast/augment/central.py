"""The view of an image by which an encoder is tested: no augmentation.

Legend: B images, C channels, H and W pixels, V pixels of a view along an axis.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mast.core.canvases import Canvases
from mast.core.entry import entry
from mast.core.fields import check_within
from mast.core.reading import RGB, cut_center, cut_planes
from mast.core.transfer import to_device

_PART = 16  # images that a thread treats at a time


@entry()
def center_views(canvases: Canvases, size: int, crop_fraction: float = 1.0) -> Tensor:
    """Resize the short side of the original images and cut the centre.

    Args:
        canvases: Whole images.
        size: Side of the view in pixels.
        crop_fraction: Share of the short side that is shown, in (0, 1].

    Returns:
        images_BCHW: In [0, 1], antialiased, in the 256 levels of 8 bits, or the 65,536 of 16 bits;
            on the device of the canvases. They are drawn on the CPU.

    Reference: torchvision `Resize(floor(size / crop_fraction))` and `CenterCrop(size)` of Pillow's
        images: bit for bit, where the canvas did not shrink them.
    """
    check_within({"size": size}, {"size": "[1, inf)"})
    sides_B2 = resized(canvases.size_B2, canvases.aspect_B, math.floor(size / crop_fraction))
    layout, values_T = canvases.layout, canvases.values_T.cpu().numpy()
    images = list(
        zip(canvases.start_B.tolist(), canvases.size_B2.tolist(), sides_B2.tolist(), strict=True)
    )

    def draw(first: int) -> list[np.ndarray]:
        views = []
        for start, (height, width), (high, wide) in images[first : first + _PART]:
            shape = (layout.sheets, height, width, 3)
            sheets_SHWC = values_T[start : start + math.prod(shape)].reshape(shape)
            if layout == RGB:
                view = cut_center(Image.fromarray(sheets_SHWC[0]), (wide, high), size)
            else:
                planes_SCHW = torch.from_numpy(np.moveaxis(sheets_SHWC, 3, 1))
                image_CHW = layout.joined(in_unit(planes_SCHW).flatten(0, 1)[None])[0]
                view = cut_planes(image_CHW.numpy(), (wide, high), size, layout)
            views.append(view)
        return views

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        drawn = [*chain(*pool.map(draw, range(0, len(images), _PART)))]
    nothing = np.empty((0, 3 * layout.sheets, size, size), np.uint8)
    views = torch.from_numpy(np.stack(drawn) if drawn else nothing)
    return layout.joined(in_unit(to_device(views, canvases.device)))


def in_unit(views_BCHW: Tensor) -> Tensor:
    """uint8 as float32 in [0, 1], by a product as torchvision has it: a quotient differs."""
    return views_BCHW.float().mul_(1 / 255)


def resized(size_B2: Tensor, aspect_B: Tensor, short: int) -> Tensor:
    """Height and width (B, 2), int64, of images whose short side is resized, as torchvision rounds.

    `size_B2` is of the images, or of what they were shrunk to; `aspect_B` of the images.
    """
    low_B1, high_B1 = size_B2.amin(1, keepdim=True), size_B2.amax(1, keepdim=True)
    exact_B2 = torch.where(size_B2 == low_B1, short, short * high_B1 // low_B1)
    ratio_B2 = torch.stack([1 / aspect_B, aspect_B], dim=1).double().clamp(min=1.0)
    # a third more than 48 pixels is 64, whatever the last digit is
    near_B2 = (short * ratio_B2 + 2e-3).floor().long()
    whole_B = (size_B2[:, 1] / size_B2[:, 0] / aspect_B - 1).abs() < 2e-6
    return torch.where(whole_B[:, None], exact_B2, near_B2)
