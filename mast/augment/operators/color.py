"""Color operators: jitters, grayscale, invert, solarize, posterize, equalize.

Legend: B samples, C channels (red, green and blue unless others are named), H and W pixels. Images
are in [0, 1] and every kernel clips to it. The semantics are those of
`torchvision.transforms.v2.functional`, a value of its own for every sample of the batch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar

import torch
from torch import Tensor

from mast.augment.operator import (
    Bounds,
    Operator,
    Parameters,
    Record,
    Stage,
    away,
    hide,
    operator,
    per_pixel,
    uniform,
)
from mast.core.reading import MOST_CHANNELS

STRENGTHS: Bounds = dict.fromkeys(("brightness", "contrast"), (0, math.inf))
ORDERS = tuple(permutations(range(4)))  # of brightness, contrast, saturation, hue
CONTRAST, SATURATION, HUE = 1, 2, 3


# ----------------------------------------------------------------------------------------
# Kernels


def gray(images_BCHW: Tensor) -> Tensor:
    """Luminance_B1HW with the ITU-R 601 weights as torchvision rounds them.

    Of other channels than three it is their mean.
    """
    if images_BCHW.shape[1] != 3:
        return images_BCHW.mean(1, keepdim=True)
    red, green, blue = images_BCHW.split(1, dim=1)
    return (red * 0.2989).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def rotate_hue(images_BCHW: Tensor, turn_B: Tensor) -> Tensor:
    """Turn the hue by parts of a full turn in [-0.5, 0.5], without leaving RGB for HSV and back.

    With value v = max and chroma c = max - min unchanged, a channel of hue h (in sixths of a turn)
    is min + c * clip(|(h + k) mod 6 - 3| - 1), k = 0, 4, 2 for red, green, blue.

    Reference: torchvision `adjust_hue`.
    """
    red, green, blue = images_BCHW.split(1, dim=1)
    low, high = images_BCHW.aminmax(dim=1, keepdim=True)
    chroma = high - low
    sixth = torch.where(
        high == red,
        green - blue,
        torch.where(
            high == green,
            torch.add(blue, chroma, alpha=2).sub_(red),
            torch.add(red, chroma, alpha=4).sub_(green),
        ),
    )
    sixth = sixth.div_(chroma.clamp(min=1e-12)).add_(per_pixel(turn_B, images_BCHW) * 6)
    # 0, 4, 2, made where the images are: bringing them there would wait for a GPU
    shift = torch.arange(3, device=sixth.device).mul_(4).remainder_(6).view(1, 3, 1, 1)
    channels = sixth + shift
    channels.sub_((channels * (1 / 6)).floor_().mul_(6))  # mod 6, cheaper than remainder
    channels.sub_(3).abs_().sub_(1).clamp_(0, 1)
    return channels.mul_(chroma).add_(low)


def jitter(images_BCHW: Tensor, factor_B3: Tensor, turn_B: Tensor, order_B4: Tensor) -> Tensor:
    """Adjust brightness, contrast, saturation and hue, in each sample's own order.

    The first three are one form, clip(f x + a gray(x) + b mean(gray(x))), so a step treats all
    samples at once; hue is turned for those whose turn it is.

    Args:
        images_BCHW: Float32 in [0, 1].
        factor_B3: Of brightness, contrast and saturation, 1 for no change.
        turn_B: Of the hue, as part of a full turn, in [-0.5, 0.5].
        order_B4: One of `ORDERS`; on the CPU it spares the device a synchronisation.

    Reference: torchvision `ColorJitter`.
    """
    factor_B4 = torch.nn.functional.pad(factor_B3, (0, 1), value=1.0)
    images = images_BCHW.clone()
    for which_B in order_B4.unbind(1):
        factor_B = factor_B4.gather(1, which_B.to(factor_B4.device)[:, None])[:, 0]
        rest_B = 1 - factor_B
        to_gray = per_pixel(torch.where(which_B == SATURATION, rest_B, 0.0), images)
        to_mean = per_pixel(torch.where(which_B == CONTRAST, rest_B, 0.0), images)
        luminance = gray(images)
        mean = luminance.mean(dim=(2, 3), keepdim=True)
        added = luminance.mul_(to_gray).add_(mean * to_mean)
        images.mul_(per_pixel(factor_B, images)).add_(added).clamp_(0, 1)
        index = (which_B == HUE).nonzero()[:, 0]
        if len(index):
            turned = index.to(images.device, non_blocking=True)
            hue = rotate_hue(images.index_select(0, turned), turn_B[index.to(turn_B.device)])
            images.index_copy_(0, turned, hue)
    return images


def jitter_bands(images_BCHW: Tensor, factor_B2: Tensor, gain_BC: Tensor) -> Tensor:
    """Multiply each channel by its gain and the brightness, then adjust its contrast.

    There may be more gains than channels; contrast, the second factor, is of the distance to the
    channel's mean.
    """
    brightness_B, contrast_B = factor_B2.unbind(1)
    gain_BC = gain_BC[:, : images_BCHW.shape[1]] * brightness_B[:, None]
    gain_BC11 = gain_BC.to(images_BCHW.device, torch.float32, non_blocking=True)[:, :, None, None]
    images = (images_BCHW * gain_BC11).clamp_(0, 1)
    contrast = per_pixel(contrast_B, images)
    mean = images.mean(dim=(2, 3), keepdim=True)
    return images.sub_(mean).mul_(contrast).add_(mean).clamp_(0, 1)


def grayscale(images_BCHW: Tensor) -> Tensor:
    """Replace the three channels by their luminance."""
    return gray(images_BCHW).repeat(1, 3, 1, 1)


def invert(images_BCHW: Tensor) -> Tensor:
    """Replace every value by its complement."""
    return 1 - images_BCHW


def solarize(images_BCHW: Tensor, threshold_B: Tensor) -> Tensor:
    """Invert the values at or above each sample's threshold in [0, 1]."""
    return torch.where(
        images_BCHW >= per_pixel(threshold_B, images_BCHW), 1 - images_BCHW, images_BCHW
    )


def to_levels(images_BCHW: Tensor) -> Tensor:
    """Quantise [0, 1] to 256 levels 0 to 255, as torchvision converts to uint8; still float."""
    return images_BCHW.mul(255.999).floor_()


def posterize(images_BCHW: Tensor, step_B: Tensor) -> Tensor:
    """Round the 8-bit levels down to multiples of a step, 1 to 128."""
    step = per_pixel(step_B, images_BCHW)
    return to_levels(images_BCHW).div_(step).floor_().mul_(step).mul_(1 / 255)


def equalize(images_BCHW: Tensor) -> Tensor:
    """Flatten the histogram of every channel of every sample, in 256 levels.

    A channel too uniform to equalise is only quantised.

    Reference: torchvision `equalize`, which is Pillow's table.
    """
    levels = to_levels(images_BCHW).flatten(2).long()
    histogram = levels.new_zeros(*levels.shape[:2], 256)
    histogram.scatter_add_(2, levels, levels.new_ones(1).expand_as(levels))
    cumulative = histogram.cumsum(2)
    brightest = histogram.gather(2, cumulative.argmax(2, keepdim=True))
    step = (levels.shape[2] - brightest) // 255
    table = (cumulative[..., :-1] + step // 2) // step.clamp(min=1)
    table = torch.nn.functional.pad(table.clamp_(0, 255), (1, 0))
    table = torch.where(step > 0, table, torch.arange(256, device=table.device))
    return table.float().mul_(1 / 255).gather(2, levels).view_as(images_BCHW)


# ----------------------------------------------------------------------------------------
# Operators


TONE: Mapping[str, float] = {"brightness": 1.0, "contrast": 1.0}  # factors without effect


@dataclass(frozen=True)
class Jitter(Operator):
    """Factors around 1, each up to the strength of its name away from it, drawn independently."""

    two_sided: ClassVar[bool] = True

    def bounds(self, name: str) -> tuple[float, float]:
        strength: float = getattr(self, name)
        return max(0.0, 1 - strength), 1 + strength

    @classmethod
    def difference(cls, change_BT: Tensor, records: Sequence[Record]) -> Tensor:
        """Of brightness and contrast, hidden where a view is equalized, which undoes them."""
        return hide(change_BT, _either(Equalize.name, records))


def _columns(parameters: Parameters, *names: str) -> Tensor:
    return torch.stack([parameters[name] for name in names], dim=1)


def _either(name: str, records: Sequence[Record]) -> Tensor:
    first, second = records
    return first.applied(name) | second.applied(name)


@operator("color_jitter", "color", Stage.COLOR, jitter, {**TONE, "saturation": 1.0, "hue": 0.0},
          within={**STRENGTHS, "saturation": (0, math.inf), "hue": (0, 0.5)},
          of_colors=True)  # fmt: skip
class ColorJitter(Jitter):
    """Random brightness, contrast, saturation and hue in random order.

    Args:
        brightness: Factors are drawn from [1 - brightness, 1 + brightness].
        contrast: Likewise.
        saturation: Likewise.
        hue: Turns are drawn from [-hue, hue], parts of a full turn.

    Reference: torchvision `ColorJitter`; strengths of VICReg.
    """

    probability: float = 0.8
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1

    def bounds(self, name: str) -> tuple[float, float]:
        return (-self.hue, self.hue) if name == "hue" else super().bounds(name)

    def sample(self, n: int, generator: torch.Generator) -> Parameters:
        drawn = super().sample(n, generator)
        return drawn | {"order": torch.randint(len(ORDERS), (n,), generator=generator)}

    def arguments(self, parameters: Parameters) -> Sequence[Tensor]:
        order_B = parameters["order"]
        order_B4 = torch.tensor(ORDERS, device=order_B.device)[order_B]
        factor_B3 = _columns(parameters, "brightness", "contrast", "saturation")
        return factor_B3, parameters["hue"], order_B4

    @classmethod
    def difference(cls, change_BT: Tensor, records: Sequence[Record]) -> Tensor:
        """Of the factors, and sine and cosine of the turn of hue between the views.

        Saturation and hue are hidden where a view is gray.
        """
        tone_B2, saturation_B1, turn_B1 = change_BT.split((2, 1, 1), dim=1)
        angle_B1 = 2 * math.pi * turn_B1
        hue_B3 = torch.cat([saturation_B1, angle_B1.sin(), angle_B1.cos() - 1], dim=1)
        tone_B2 = super().difference(tone_B2, records)
        return torch.cat([tone_B2, hide(hue_B3, _either(Grayscale.name, records))], dim=1)


@operator("band_jitter", "color", Stage.COLOR, jitter_bands, TONE,
          within={**STRENGTHS, "gain": (0, math.inf)})  # fmt: skip
class BandJitter(Jitter):
    """Random brightness of all channels, contrast around the mean of each, and a gain of each.

    It is what `color_jitter` becomes for images of other channels than red, green and blue.

    Args:
        brightness: Factors are drawn from [1 - brightness, 1 + brightness].
        contrast: Likewise.
        gain: Likewise, one for each channel.
    """

    probability: float = 0.8
    brightness: float = 0.4
    contrast: float = 0.4
    gain: float = 0.2

    def sample(self, n: int, generator: torch.Generator) -> Parameters:
        factors = super().sample(n, generator)
        gain_BC = uniform(n * MOST_CHANNELS, self.bounds("gain"), generator)
        return factors | {"gain": gain_BC.view(n, MOST_CHANNELS)}

    def at_magnitude(self, magnitude: float, parameters: Parameters) -> Parameters:
        gain_BC = away(magnitude, self.bounds("gain"), parameters["gain"], 1.0)
        return super().at_magnitude(magnitude, parameters) | {"gain": gain_BC}

    def arguments(self, parameters: Parameters) -> Sequence[Tensor]:
        return _columns(parameters, "brightness", "contrast"), parameters["gain"]


@operator("grayscale", "color", Stage.COLOR, grayscale, of_colors=True)
class Grayscale(Operator):
    """Replace the three channels by their luminance."""

    probability: float = 0.2


@operator("invert", "color", Stage.COLOR, invert)
class Invert(Operator):
    """Replace every value by its complement."""

    probability: float = 0.2


@operator("solarize", "color", Stage.SOLARIZE, solarize, {"threshold": 1.0},
          within={"threshold": (0, 1)})  # fmt: skip
class Solarize(Operator):
    """Invert the values at or above a random threshold.

    Args:
        threshold: Range on [0, 1].
    """

    probability: float = 0.2
    threshold: tuple[float, float] = (0.0, 1.0)


@operator("posterize", "color", Stage.COLOR, posterize, {"bits": 8.0}, within={"bits": (1, 8)})
class Posterize(Operator):
    """Keep only the highest bits of every value.

    Args:
        bits: Smallest and largest number of bits kept.
    """

    probability: float = 0.2
    bits: tuple[int, int] = (4, 8)

    def sample(self, n: int, generator: torch.Generator) -> Parameters:
        return {"bits": torch.randint(self.bits[0], self.bits[1] + 1, (n,), generator=generator)}

    def at_magnitude(self, magnitude: float, parameters: Parameters) -> Parameters:
        bits = super().at_magnitude(magnitude, parameters)["bits"]
        return {"bits": bits.round().to(parameters["bits"].dtype)}

    def arguments(self, parameters: Parameters) -> Sequence[Tensor]:
        return (torch.exp2(8.0 - parameters["bits"]),)


@operator("equalize", "color", Stage.EQUALIZE, equalize)
class Equalize(Operator):
    """Flatten the histogram of every channel."""

    probability: float = 0.2
