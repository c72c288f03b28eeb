"""Filters and occlusion: Gaussian blur, sharpness, motion blur, Sobel, cutout.

Legend: B samples, C channels, H and W pixels, T taps of a filter. Images are in [0, 1] and
every kernel clips to it. Magnitudes in pixels are given for a view of 224 and scale with its side.
"""

from collections.abc import Sequence
from math import ceil, inf
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mast.augment.operator import (
    Operator,
    Parameters,
    Stage,
    between,
    operator,
    per_pixel,
    uniform,
)
from mast.augment.operators.color import gray
from mast.augment.warp import separable
from mast.core.transfer import to_device

REFERENCE_SIDE = 224  # pixels, where the magnitudes in pixels were published


def odd(pixels: float) -> int:
    """Nearest odd whole number, at least 3: the side of a centred filter."""
    return max(3, 2 * round((pixels - 1) / 2) + 1)


# ----------------------------------------------------------------------------------------
# Kernels


def gaussian_blur(images_BCHW: Tensor, sigma_B: Tensor, taps: int) -> Tensor:
    """Blur each sample (square) with its own Gaussian of `taps` pixels, mirrored at the border.

    Each axis is one matrix a sample that holds the taps and the mirror, so the blur is two batched
    products whatever the sigmas.

    Reference: torchvision `gaussian_blur`.
    """
    side, radius = images_BCHW.shape[-1], taps // 2
    offset_T = torch.arange(-radius, radius + 1, device=images_BCHW.device)
    sigma_B1 = sigma_B.to(images_BCHW.device, torch.float32, non_blocking=True)[:, None]
    weight_BT = torch.softmax(-((offset_T / sigma_B1) ** 2) / 2, dim=1)
    source_HT = torch.arange(side, device=images_BCHW.device)[:, None] + offset_T
    source_HT = (side - 1) - ((side - 1) - source_HT.abs()).abs()
    matrix_BHH = weight_BT.new_zeros(len(sigma_B1), side, side)
    matrix_BHH.scatter_add_(
        2,
        source_HT.expand(len(sigma_B1), -1, -1),
        weight_BT[:, None].expand(-1, side, -1),
    )
    return separable(images_BCHW, matrix_BHH, matrix_BHH).clamp_(0, 1)


def sharpen(images_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """Move away from (factor above 1) or towards a 3x3 smoothing; the border pixels stay.

    Reference: torchvision `adjust_sharpness`.
    """
    rows = images_BCHW[..., :-2, :] + images_BCHW[..., 1:-1, :]
    rows += images_BCHW[..., 2:, :]
    smooth = rows[..., :-2] + rows[..., 1:-1]
    smooth += rows[..., 2:]
    center = images_BCHW[..., 1:-1, 1:-1]
    smooth.add_(center, alpha=4).mul_(1 / 13)
    factor = per_pixel(factor_B, images_BCHW)
    images = images_BCHW.clone()
    images[..., 1:-1, 1:-1] = torch.lerp(smooth, center, factor).clamp_(0, 1)
    return images


def motion_kernels(taps_B: Tensor, angle_B: Tensor, largest: int) -> Tensor:
    """Filters of uniform motion along a line: float32 (B, T, T), each of sum 1, T = largest.

    Args:
        taps_B: Length of each line in pixels, from 1; of the outermost ones it covers a part.
        angle_B: Degrees, counter-clockwise.
        largest: Odd side of the window, which holds the longest line.

    Reference: kornia `get_motion_kernel2d` (nearest, direction 0), for odd lengths.
    """
    offset_T = torch.arange(largest, device=angle_B.device, dtype=torch.float64) - largest // 2
    radians_B11 = torch.deg2rad(angle_B.double())[:, None, None]
    cos, sin = radians_B11.cos(), radians_B11.sin()
    x_T, y_T1 = offset_T, offset_T[:, None]
    # rounded to 2^-20 first, so that ties fall to the even pixel whatever the sine's last bit
    along = ((cos * x_T - sin * y_T1) * 2**20).round().div(2**20).round()
    across = ((sin * x_T + cos * y_T1) * 2**20).round().div(2**20).round()
    reach_B11 = (taps_B.double()[:, None, None] - 1) / 2
    window = torch.maximum(x_T.abs(), y_T1.abs()) <= reach_B11.ceil()
    covered = (reach_B11 + 1 - along.abs()).clamp(0, 1)
    line = (covered * ((across == 0) & window)).float()
    return line / line.sum(dim=(1, 2), keepdim=True)


def motion_blur(images_BCHW: Tensor, kernels_BTT: Tensor) -> Tensor:
    """Correlate each sample with its own filter, mirrored at the border."""
    radius = kernels_BTT.shape[-1] // 2
    padded = functional.pad(images_BCHW, (radius,) * 4, mode="reflect").transpose(0, 1)
    kernels_B1TT = to_device(kernels_BTT[:, None], images_BCHW.device)
    filtered = functional.conv2d(padded, kernels_B1TT, groups=len(kernels_BTT))
    return filtered.transpose(0, 1).contiguous().clamp_(0, 1)


def blend_edges(images_BCHW: Tensor, blend_B: Tensor) -> Tensor:
    """Blend with the gradient magnitude of the luminance, clipped to 1, by shares in [0, 1].

    Reference: kornia `sobel` with `normalized=False`: a step of a quarter already gives 1.
    """
    padded = functional.pad(gray(images_BCHW), (1, 1, 1, 1), mode="replicate")
    columns = padded[..., :-2, :] + padded[..., 2:, :]
    columns.add_(padded[..., 1:-1, :], alpha=2)
    rows = padded[..., :-2] + padded[..., 2:]
    rows.add_(padded[..., 1:-1], alpha=2)
    along_x = columns[..., 2:] - columns[..., :-2]
    along_y = rows[..., 2:, :] - rows[..., :-2, :]
    edges = along_x.square_().addcmul_(along_y, along_y).add_(1e-6).sqrt_().clamp_(max=1)
    return torch.lerp(images_BCHW, edges, per_pixel(blend_B, images_BCHW))


def cut_out(images_BCHW: Tensor, side_B: Tensor, x_B: Tensor, y_B: Tensor) -> Tensor:
    """Cover a square with the image's mean color; what lies outside the view is cut.

    Side and centre are shares of the view's.
    """
    height, width = images_BCHW.shape[-2:]
    half = per_pixel(side_B, images_BCHW) / 2
    row_H1 = ((torch.arange(height, device=images_BCHW.device) + 0.5) / height)[:, None]
    column_W = (torch.arange(width, device=images_BCHW.device) + 0.5) / width
    in_rows = (row_H1 - per_pixel(y_B, images_BCHW)).abs() < half
    in_columns = (column_W - per_pixel(x_B, images_BCHW)).abs() < half
    mean = images_BCHW.mean(dim=(2, 3), keepdim=True)
    return torch.where(in_rows & in_columns, mean, images_BCHW)


# ----------------------------------------------------------------------------------------
# Operators


@operator("gaussian_blur", "focus", Stage.BLUR, gaussian_blur, {"sigma": 0.0},
          within={"sigma": (1e-6, inf), "extent": (0, 1.9)})  # fmt: skip
class GaussianBlur(Operator):
    """Gaussian blur of a random width.

    Args:
        sigma: Range in pixels of a view of 224.
        extent: Side of the filter as a share of the view's.
    """

    sigma: tuple[float, float] = (0.1, 2.0)
    extent: float = 0.1

    @property
    def taps(self) -> int:
        """Side of the filter in pixels."""
        return odd(self.extent * self.size)

    def magnitudes(self) -> dict[str, Any]:
        scale = self.size / REFERENCE_SIDE
        return {"sigma": tuple(bound * scale for bound in self.sigma), "taps": self.taps}

    def sample(self, n: int, generator: torch.Generator) -> Parameters:
        return {"sigma": uniform(n, self.sigma, generator) * (self.size / REFERENCE_SIDE)}

    def at_magnitude(self, magnitude: float, parameters: Parameters) -> Parameters:
        scale = self.size / REFERENCE_SIDE
        return {"sigma": between(magnitude, self.sigma, parameters["sigma"]) * scale}

    def apply(self, images_BCHW: Tensor, parameters: Parameters) -> Tensor:
        return gaussian_blur(images_BCHW, parameters["sigma"], self.taps)

    def arguments(self, parameters: Parameters) -> Sequence[Tensor]:
        # beyond four sigmas the filter is 0, which moves no value by more than 1e-4
        radius_N = (4 * parameters["sigma"]).ceil().clamp(max=self.taps // 2)
        return parameters["sigma"], radius_N.long()


@operator("sharpness", "focus", Stage.BLUR, sharpen, {"factor": 1.0}, two_sided=True)
class Sharpness(Operator):
    """Sharpen or soften.

    Args:
        factor: Range; 0 smooths, 1 changes nothing, 2 sharpens.
    """

    factor: tuple[float, float] = (0.1, 1.9)


@operator("sobel", "color", Stage.EDGE, blend_edges, {"blend": 0.0}, within={"blend": (0, 1)})
class Sobel(Operator):
    """Blend with the edges of the luminance.

    Args:
        blend: Range of the share of the edges.
    """

    probability: float = 0.2
    blend: tuple[float, float] = (0.1, 1.0)


@operator("cutout", "parts", Stage.OCCLUSION, cut_out, {"side": 0.0}, within={"side": (0, 2)})
class Cutout(Operator):
    """Cover a square at a random place with the image's mean color.

    Args:
        side: Range of the square's side as a share of the view's.
    """

    side: tuple[float, float] = (0.0, 0.5)

    def sample(self, n: int, generator: torch.Generator) -> Parameters:
        bounds = {"side": self.side, "x": (0.0, 1.0), "y": (0.0, 1.0)}
        return {name: uniform(n, of, generator) for name, of in bounds.items()}

    @classmethod
    def effect(cls, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        side_B, x_B, y_B = (parameters[name] for name in ("side", "x", "y"))
        return torch.stack([side_B, side_B * (x_B - 0.5), side_B * (y_B - 0.5)], dim=1)


@operator("motion_blur", "focus", Stage.BLUR, motion_blur, within={"taps": (3, 393)})
class MotionBlur(Operator):
    """Blur along a line of random length and angle.

    Args:
        taps: Shortest and longest line in pixels of a view of 224, both odd and at least 3. All odd
            lengths between them are drawn, and scaled with the view.
        angle: Range in degrees.
    """

    taps: tuple[int, int] = (3, 7)
    angle: tuple[float, float] = (0.0, 360.0)

    @property
    def taps_range(self) -> tuple[float, float]:
        """Shortest and longest line in pixels of this view."""
        shortest, longest = (self._scaled(odd(taps)) for taps in self.taps)
        return shortest, longest

    @property
    def window(self) -> int:
        """Odd side of the filter that holds the longest line."""
        return 1 + 2 * ceil((self.taps_range[1] - 1) / 2)

    def _scaled(self, taps: Any) -> Any:
        """Lines of a view of 224, in a view of this size."""
        return 1 + (taps - 1) * self.size / REFERENCE_SIDE

    def sample(self, n: int, generator: torch.Generator) -> Parameters:
        shortest, longest = (odd(taps) for taps in self.taps)
        steps = torch.randint((longest - shortest) // 2 + 1, (n,), generator=generator)
        taps = self._scaled(shortest + 2 * steps)
        return {"taps": taps, "angle": uniform(n, self.angle, generator)}

    def at_magnitude(self, magnitude: float, parameters: Parameters) -> Parameters:
        return parameters | {"taps": between(magnitude, self.taps_range, parameters["taps"])}

    def magnitudes(self) -> dict[str, Any]:
        return super().magnitudes() | {"taps": self.taps_range}

    def arguments(self, parameters: Parameters) -> Sequence[Tensor]:
        return (motion_kernels(parameters["taps"], parameters["angle"], self.window),)

    @classmethod
    def effect(cls, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        # A line has no direction: turned by half a circle it is the same.
        length_B, twice_B = parameters["taps"] - 1, torch.deg2rad(2 * parameters["angle"])
        return torch.stack([length_B, length_B * twice_B.cos(), length_B * twice_B.sin()], dim=1)
