"""Color operators: jitters, grayscale, invert, solarize, posterize, equalize.

Legend: B samples, C channels (red, green and blue unless others are named), H and W pixels. Images
are in [0, 1] and every kernel clips to it. The semantics are those of
`torchvision.transforms.v2.functional`, a value of its own for every sample of the batch.
"""

import math
from collections.abc import Sequence
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
    between,
    hide,
    per_pixel,
    uniform,
)
from mast.core.reading import MOST_CHANNELS

STRENGTHS: Bounds = dict.fromkeys(("brightness", "contrast"), (0, math.inf))
ORDERS = tuple(permutations(range(4)))  # of brightness, contrast, saturation, hue
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
FACTORS = ("brightness", "contrast", "saturation")


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


def jitter(
    images_BCHW: Tensor,
    *,
    brightness_B: Tensor,
    contrast_B: Tensor,
    saturation_B: Tensor,
    hue_B: Tensor,
    order_B: Tensor,
) -> Tensor:
    """Adjust brightness, contrast, saturation and hue, in each sample's own order.

    The first three are one form, clip(f x + a gray(x) + b mean(gray(x))), so a step treats all
    samples at once; hue is turned for those whose turn it is.

    Args:
        images_BCHW: Float32 in [0, 1].
        brightness_B: Factor, 1 for no change; likewise contrast_B and saturation_B.
        contrast_B: Factor.
        saturation_B: Factor.
        hue_B: Part of a full turn, in [-0.5, 0.5].
        order_B: Index into `ORDERS`; on the CPU it spares the device a synchronisation.

    Reference: torchvision `ColorJitter`.
    """
    turn_B4 = torch.tensor(ORDERS, device=order_B.device)[order_B]
    factor_B3 = torch.stack([brightness_B, contrast_B, saturation_B], dim=1)
    factor_B4 = torch.nn.functional.pad(factor_B3, (0, 1), value=1.0)
    images = images_BCHW.clone()
    for step in range(4):
        which_B = turn_B4[:, step]
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
            hue = rotate_hue(images.index_select(0, turned), hue_B[index.to(hue_B.device)])
            images.index_copy_(0, turned, hue)
    return images


def jitter_bands(
    images_BCHW: Tensor, brightness_B: Tensor, contrast_B: Tensor, gain_BC: Tensor
) -> Tensor:
    """Multiply each channel by its gain and the brightness, then adjust its contrast.

    There may be more gains than channels; contrast is the factor of the distance to the channel's
    mean.
    """
    gain_BC = gain_BC[:, : images_BCHW.shape[1]] * brightness_B[:, None]
    gain_BC11 = gain_BC.to(images_BCHW.device, torch.float32, non_blocking=True)[:, :, None, None]
    images = (images_BCHW * gain_BC11).clamp_(0, 1)
    contrast = per_pixel(contrast_B, images)
    mean = images.mean(dim=(2, 3), keepdim=True)
    return images.sub_(mean).mul_(contrast).add_(mean).clamp_(0, 1)


def solarize(images_BCHW: Tensor, threshold_B: Tensor) -> Tensor:
    """Invert the values at or above each sample's threshold in [0, 1]."""
    return torch.where(
        images_BCHW >= per_pixel(threshold_B, images_BCHW), 1 - images_BCHW, images_BCHW
    )


def to_levels(images_BCHW: Tensor) -> Tensor:
    """Quantise [0, 1] to 256 levels 0 to 255, as torchvision converts to uint8; still float."""
    return images_BCHW.mul(255.999).floor_()


def posterize(images_BCHW: Tensor, bits_B: Tensor) -> Tensor:
    """Keep the highest bits (1 to 8) of the 8-bit levels."""
    step = per_pixel(torch.exp2(8.0 - bits_B), images_BCHW)
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


def _factors(
    strengths: Operator, names: Sequence[str], n: int, generator: torch.Generator
) -> Parameters:
    """Factors around 1, each up to the strength of its name away from it."""
    most = {name: getattr(strengths, name) for name in names}
    return {
        name: uniform(n, (max(0.0, 1 - strength), 1 + strength), generator)
        for name, strength in most.items()
    }


def _factors_at(
    strengths: Operator, names: Sequence[str], magnitude: float, parameters: Parameters
) -> Parameters:
    most = {name: getattr(strengths, name) for name in names}
    return {
        name: away(magnitude, (max(0.0, 1 - strength), 1 + strength), parameters[name], 1.0)
        for name, strength in most.items()
    }


@dataclass(frozen=True)
class ColorJitter(Operator):
    """Random brightness, contrast, saturation and hue in random order.

    Args:
        brightness: Factors are drawn from [1 - brightness, 1 + brightness].
        contrast: Likewise.
        saturation: Likewise.
        hue: Turns are drawn from [-hue, hue], parts of a full turn.

    Reference: torchvision `ColorJitter`; strengths of VICReg.
    """

    name: ClassVar[str] = "color_jitter"
    within: ClassVar[Bounds] = {**STRENGTHS, "saturation": (0, math.inf), "hue": (0, 0.5)}
    label: ClassVar[str] = "jitter"
    destroys: ClassVar[str] = "color"
    stage: ClassVar[Stage] = Stage.COLOR
    of_colors: ClassVar[bool] = True
    kernel: ClassVar[str] = "jitter"

    probability: float = 0.8
    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1

    def sample(self, n: int, generator: torch.Generator) -> Parameters:
        return _factors(self, FACTORS, n, generator) | {
            "hue": uniform(n, (-self.hue, self.hue), generator),
            "order": torch.randint(len(ORDERS), (n,), generator=generator),
        }

    def at_magnitude(self, magnitude: float, parameters: Parameters) -> Parameters:
        hue = away(magnitude, (-self.hue, self.hue), parameters["hue"], 0.0)
        return parameters | _factors_at(self, FACTORS, magnitude, parameters) | {"hue": hue}

    def apply(self, images_BCHW: Tensor, parameters: Parameters) -> Tensor:
        values = {f"{name}_B": value for name, value in parameters.items()}
        return jitter(images_BCHW, **values)

    def kernel_arguments(self, parameters: Parameters) -> Sequence[Tensor]:
        factor_N3 = torch.stack([parameters[name] for name in FACTORS], dim=1)
        return factor_N3, parameters["hue"], torch.tensor(ORDERS)[parameters["order"]]

    @classmethod
    def effect(cls, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        factors_B3 = torch.stack([parameters[name] for name in FACTORS], dim=1)
        return torch.cat([factors_B3 - 1, parameters["hue"][:, None]], dim=1)

    @classmethod
    def difference(
        cls, first_BT: Tensor, second_BT: Tensor, first: Record, second: Record
    ) -> Tensor:
        """Of the factors, and sine and cosine of the turn of hue between the views.

        Saturation and hue are hidden where a view is gray; brightness and contrast where one is
        equalized, which undoes them.
        """
        tone_B2, saturation_B1, turn_B1 = (first_BT - second_BT).split((2, 1, 1), dim=1)
        angle_B1 = 2 * math.pi * turn_B1
        hue_B3 = torch.cat([saturation_B1, angle_B1.sin(), angle_B1.cos() - 1], dim=1)
        gray_B, equal_B = (
            first.applied(name) | second.applied(name) for name in (Grayscale.name, Equalize.name)
        )
        return torch.cat([hide(tone_B2, equal_B), hide(hue_B3, gray_B)], dim=1)

    @classmethod
    def caption(cls, parameters: Parameters) -> str:
        brightness, contrast, saturation, hue = (
            parameters[name].item() for name in (*FACTORS, "hue")
        )
        return f"jitter b{brightness:.1f} c{contrast:.1f} s{saturation:.1f} h{hue:+.2f}"


@dataclass(frozen=True)
class BandJitter(Operator):
    """Random brightness of all channels, contrast around the mean of each, and a gain of each.

    It is what `color_jitter` becomes for images of other channels than red, green and blue.

    Args:
        brightness: Factors are drawn from [1 - brightness, 1 + brightness].
        contrast: Likewise.
        gain: Likewise, one for each channel.
    """

    name: ClassVar[str] = "band_jitter"
    within: ClassVar[Bounds] = {**STRENGTHS, "gain": (0, math.inf)}
    destroys: ClassVar[str] = "color"
    stage: ClassVar[Stage] = Stage.COLOR
    kernel: ClassVar[str] = "jitter_bands"

    probability: float = 0.8
    brightness: float = 0.4
    contrast: float = 0.4
    gain: float = 0.2

    def sample(self, n: int, generator: torch.Generator) -> Parameters:
        factors = _factors(self, FACTORS[:2], n, generator)
        low, high = max(0.0, 1 - self.gain), 1 + self.gain
        gain_BC = torch.rand(n, MOST_CHANNELS, generator=generator) * (high - low) + low
        return factors | {"gain": gain_BC}

    def at_magnitude(self, magnitude: float, parameters: Parameters) -> Parameters:
        return _factors_at(self, (*FACTORS[:2], "gain"), magnitude, parameters)

    def apply(self, images_BCHW: Tensor, parameters: Parameters) -> Tensor:
        brightness_B, contrast_B, gain_BC = (
            parameters[name] for name in ("brightness", "contrast", "gain")
        )
        return jitter_bands(images_BCHW, brightness_B, contrast_B, gain_BC)

    def kernel_arguments(self, parameters: Parameters) -> Sequence[Tensor]:
        factors = [parameters[name] for name in ("brightness", "contrast")]
        return torch.stack(factors, dim=1), parameters["gain"]

    @classmethod
    def effect(cls, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        return torch.stack([parameters["brightness"] - 1, parameters["contrast"] - 1], dim=1)

    @classmethod
    def difference(
        cls, first_BT: Tensor, second_BT: Tensor, first: Record, second: Record
    ) -> Tensor:
        """Of the factors, hidden where a view is equalized."""
        equal_B = first.applied(Equalize.name) | second.applied(Equalize.name)
        return hide(first_BT - second_BT, equal_B)

    @classmethod
    def caption(cls, parameters: Parameters) -> str:
        brightness, contrast = (parameters[name].item() for name in ("brightness", "contrast"))
        return f"bands b{brightness:.1f} c{contrast:.1f}"


@dataclass(frozen=True)
class Grayscale(Operator):
    """Replace the three channels by their luminance."""

    name: ClassVar[str] = "grayscale"
    label: ClassVar[str] = "gray"
    destroys: ClassVar[str] = "color"
    stage: ClassVar[Stage] = Stage.COLOR
    of_colors: ClassVar[bool] = True
    kernel: ClassVar[str] = "grayscale"

    probability: float = 0.2

    def apply(self, images_BCHW: Tensor, parameters: Parameters) -> Tensor:
        return gray(images_BCHW).repeat(1, 3, 1, 1)


@dataclass(frozen=True)
class Invert(Operator):
    """Replace every value by its complement."""

    name: ClassVar[str] = "invert"
    destroys: ClassVar[str] = "color"
    stage: ClassVar[Stage] = Stage.COLOR
    kernel: ClassVar[str] = "invert"

    probability: float = 0.2

    def apply(self, images_BCHW: Tensor, parameters: Parameters) -> Tensor:
        return 1 - images_BCHW


@dataclass(frozen=True)
class Solarize(Operator):
    """Invert the values at or above a random threshold.

    Args:
        threshold: Range on [0, 1].
    """

    name: ClassVar[str] = "solarize"
    within: ClassVar[Bounds] = {"threshold": (0, 1)}
    destroys: ClassVar[str] = "color"
    stage: ClassVar[Stage] = Stage.SOLARIZE
    drawn: ClassVar[str] = "threshold"
    kernel: ClassVar[str] = "solarize"
    kernel_takes: ClassVar[tuple[str, ...]] = ("threshold",)

    probability: float = 0.2
    threshold: tuple[float, float] = (0.0, 1.0)

    def at_magnitude(self, magnitude: float, parameters: Parameters) -> Parameters:
        low, high = self.threshold
        return {"threshold": between(magnitude, (high, low), parameters["threshold"])}

    def apply(self, images_BCHW: Tensor, parameters: Parameters) -> Tensor:
        return solarize(images_BCHW, parameters["threshold"])

    @classmethod
    def effect(cls, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        return (1 - parameters["threshold"])[:, None]


@dataclass(frozen=True)
class Posterize(Operator):
    """Keep only the highest bits of every value.

    Args:
        bits: Smallest and largest number of bits kept.
    """

    name: ClassVar[str] = "posterize"
    within: ClassVar[Bounds] = {"bits": (1, 8)}
    destroys: ClassVar[str] = "color"
    stage: ClassVar[Stage] = Stage.COLOR
    kernel: ClassVar[str] = "posterize"

    probability: float = 0.2
    bits: tuple[int, int] = (4, 8)

    def sample(self, n: int, generator: torch.Generator) -> Parameters:
        return {"bits": torch.randint(self.bits[0], self.bits[1] + 1, (n,), generator=generator)}

    def at_magnitude(self, magnitude: float, parameters: Parameters) -> Parameters:
        fewest, most = self.bits
        bits = between(magnitude, (most, fewest), parameters["bits"])
        return {"bits": bits.round().to(parameters["bits"].dtype)}

    def apply(self, images_BCHW: Tensor, parameters: Parameters) -> Tensor:
        return posterize(images_BCHW, parameters["bits"])

    def kernel_arguments(self, parameters: Parameters) -> Sequence[Tensor]:
        return (torch.exp2(8.0 - parameters["bits"]),)

    @classmethod
    def effect(cls, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        return (8.0 - parameters["bits"])[:, None]

    @classmethod
    def caption(cls, parameters: Parameters) -> str:
        return f"posterize {int(parameters['bits'])} bits"


@dataclass(frozen=True)
class Equalize(Operator):
    """Flatten the histogram of every channel."""

    name: ClassVar[str] = "equalize"
    destroys: ClassVar[str] = "color"
    stage: ClassVar[Stage] = Stage.EQUALIZE
    kernel: ClassVar[str] = "equalize"

    probability: float = 0.2

    def apply(self, images_BCHW: Tensor, parameters: Parameters) -> Tensor:
        return equalize(images_BCHW)
