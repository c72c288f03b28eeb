"""The views of MAST-5, MAST-15 and MAST-19 in other libraries, as their own documents write them.

Operators and chances are those of `mast.augment`, and so are magnitudes where a library draws them
from a range: torchvision's sharpness, solarize, posterize and noise are fixed at a middle value.
Each geometric operator is one of the library, as its documents compose them. Where a library lacks
an operator, the entry says what stands for it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from mast.augment import PRESETS
from mast.augment.operators.filters import odd
from mast.models.encoders import IMAGENET

# One view of every image; the images are what the library likes best.
Augment = Callable[[], object]


def torchvision_pil(preset: str, size: int, images: list[Image.Image], out: Tensor) -> Augment:
    """`torchvision.transforms.v2` on PIL images, one at a time, to a float32 batch."""
    steps = [_TORCHVISION[name](size) for name in PRESETS[preset].operators]
    transform = v2.Compose([*steps, v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
    if "gaussian_noise" in PRESETS[preset].operators:
        transform.transforms.append(v2.RandomApply([v2.GaussianNoise(sigma=0.05)], p=0.5))
    if "cutout" in PRESETS[preset].operators:
        transform.transforms.append(v2.RandomErasing(p=0.5, scale=(0.0, 0.25), ratio=(1.0, 1.0)))
    return lambda: torch.stack([transform(image) for image in images], out=out)


def torchvision_pil_fast_blur(
    preset: str, size: int, images: list[Image.Image], out: Tensor
) -> Augment:
    """As `torchvision_pil`, blurred by Pillow as in VICReg's code: box filters, no Gaussian."""
    steps = [
        v2.RandomApply([_PillowBlur(size)], p=0.5) if name == "gaussian_blur" else
        _TORCHVISION[name](size)
        for name in PRESETS[preset].operators
    ]  # fmt: skip
    transform = v2.Compose([*steps, v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
    return lambda: torch.stack([transform(image) for image in images], out=out)


def torchvision_tensor(preset: str, size: int, images_BCHW: Tensor, out: Tensor) -> Augment:
    """`torchvision.transforms.v2` on uint8 tensors, one at a time, to a float32 batch."""
    steps = [_TORCHVISION[name](size) for name in PRESETS[preset].operators]
    transform = v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True)])
    return lambda: torch.stack([transform(image) for image in images_BCHW], out=out)


def kornia(preset: str, size: int, images_BCHW: Tensor, part: int) -> Augment:
    """`kornia.augmentation` on uint8 batches of `part`, each sample with its own parameters."""
    import kornia.augmentation as k

    taps = odd(0.1 * size)
    scale = size / 224
    motion = max(odd(3 * scale), 3), max(odd(7 * scale), 3)
    make: dict[str, Callable[[], nn.Module]] = {
        "random_resized_crop": lambda: k.RandomResizedCrop((size, size), _scale(size)),
        "horizontal_flip": lambda: k.RandomHorizontalFlip(p=0.5),
        "color_jitter": lambda: k.ColorJitter(0.4, 0.4, 0.2, 0.1, p=0.8),
        "grayscale": lambda: k.RandomGrayscale(p=0.2),
        "gaussian_blur": lambda: k.RandomGaussianBlur(
            (taps, taps), (0.1 * scale, 2.0 * scale), p=0.5
        ),
        "shear_x": lambda: k.RandomAffine(0.0, shear=(-16.7, 16.7, 0.0, 0.0), p=0.5),
        "shear_y": lambda: k.RandomAffine(0.0, shear=(0.0, 0.0, -16.7, 16.7), p=0.5),
        "translate_x": lambda: k.RandomAffine(0.0, translate=(0.45, 0.0), p=0.5),
        "translate_y": lambda: k.RandomAffine(0.0, translate=(0.0, 0.45), p=0.5),
        "rotate": lambda: k.RandomRotation(30.0, p=0.5),
        "invert": lambda: k.RandomInvert(p=0.2),
        "sharpness": lambda: k.RandomSharpness((0.1, 1.9), p=0.5),
        "gaussian_noise": lambda: k.RandomGaussianNoise(std=0.05, p=0.5),
        "sobel": _KorniaSobel,
        "cutout": lambda: k.RandomErasing((0.0001, 0.25), (1.0, 1.0), p=0.5),
        "solarize": lambda: k.RandomSolarize((0.0, 1.0), 0.0, p=0.2),
        "equalize": lambda: k.RandomEqualize(p=0.2),
        "posterize": lambda: k.RandomPosterize((4.0, 8.0), p=0.2),
        "motion_blur": lambda: k.RandomMotionBlur(motion, (0.0, 360.0), 0.0, p=0.5),
    }
    transform = nn.Sequential(*(make[name]() for name in PRESETS[preset].operators))

    @torch.inference_mode()
    def run() -> list[Tensor]:
        return [transform(some.float().mul_(1 / 255)) for some in images_BCHW.split(part)]

    return run


def albumentationsx(preset: str, size: int, images_BHWC: np.ndarray, out: Tensor) -> Augment:
    """AlbumentationsX on uint8 arrays, one at a time, to a float32 batch; MAST-5 only."""
    import albumentations as a

    if preset != "mast5":
        raise ValueError(f"AlbumentationsX has no Sobel; expected mast5, got {preset}")
    taps = odd(0.1 * size)
    transform = a.Compose(
        [
            a.RandomResizedCrop((size, size), scale=_scale(size)),
            a.HorizontalFlip(p=0.5),
            a.ColorJitter((0.6, 1.4), (0.6, 1.4), (0.8, 1.2), (-0.1, 0.1), p=0.8),
            a.ToGray(p=0.2),
            a.GaussianBlur((taps, taps), (0.1 * size / 224, 2.0 * size / 224), p=0.5),
            a.ToFloat(255),
            a.ToTensorV2(),
        ]
    )
    return lambda: torch.stack([transform(image=image)["image"] for image in images_BHWC], out=out)


def _scale(size: int) -> tuple[float, float]:
    return (0.2, 1.0) if size <= 96 else (0.08, 1.0)


class _PillowBlur(v2.Transform):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.largest = 2.0 * size / 224

    def transform(self, inpt: Image.Image, params: dict[str, object]) -> Image.Image:
        return inpt.filter(ImageFilter.GaussianBlur(float(torch.rand(())) * self.largest))


class _PillowSobel(v2.Transform):
    """The two 3x3 filters by Pillow, their magnitude by NumPy, blended by Pillow."""

    def transform(self, inpt: Image.Image, params: dict[str, object]) -> Image.Image:
        gray = inpt.convert("L")
        along_x = gray.filter(ImageFilter.Kernel((3, 3), (-1, 0, 1, -2, 0, 2, -1, 0, 1), 1, 128))
        along_y = gray.filter(ImageFilter.Kernel((3, 3), (-1, -2, -1, 0, 0, 0, 1, 2, 1), 1, 128))
        edges = np.hypot(np.asarray(along_x) - 128.0, np.asarray(along_y) - 128.0)
        image = Image.fromarray(edges.clip(0, 255).astype(np.uint8)).convert("RGB")
        return Image.blend(inpt, image, float(torch.rand(())))


class _PillowMotionBlur(v2.Transform):
    """Lines of 3 or 5 pixels at four angles: the filters that Pillow takes."""

    lines = (
        np.eye(5), np.eye(5)[::-1], np.eye(5)[2:3].repeat(5, 0), np.eye(5)[2:3].repeat(5, 0).T,
    )  # fmt: skip

    def transform(self, inpt: Image.Image, params: dict[str, object]) -> Image.Image:
        line = self.lines[int(torch.randint(4, ()))]
        return inpt.filter(ImageFilter.Kernel((5, 5), line.ravel().tolist(), 5))


class _KorniaSobel(nn.Module):
    """`kornia.filters.sobel` of the gray image, blended with a fifth of the samples."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        from kornia.color import rgb_to_grayscale
        from kornia.filters import sobel

        index = (torch.rand(len(images_BCHW)) < 0.2).nonzero()[:, 0].to(images_BCHW.device)
        some = images_BCHW[index]
        edges = sobel(rgb_to_grayscale(some), normalized=False).clamp(max=1)
        blend = torch.rand(len(index), 1, 1, 1, device=some.device)
        return images_BCHW.index_copy(0, index, torch.lerp(some, edges.expand_as(some), blend))


def _apply(
    transform: Callable[[int], v2.Transform], chance: float
) -> Callable[[int], v2.Transform]:
    return lambda size: v2.RandomApply([transform(size)], p=chance)


_BILINEAR = v2.InterpolationMode.BILINEAR
_TORCHVISION: dict[str, Callable[[int], v2.Transform]] = {
    "random_resized_crop": lambda size: v2.RandomResizedCrop(size, _scale(size)),
    "horizontal_flip": lambda size: v2.RandomHorizontalFlip(),
    "color_jitter": _apply(lambda size: v2.ColorJitter(0.4, 0.4, 0.2, 0.1), 0.8),
    "grayscale": lambda size: v2.RandomGrayscale(0.2),
    "gaussian_blur": _apply(
        lambda size: v2.GaussianBlur(odd(0.1 * size), (0.1 * size / 224, 2.0 * size / 224)), 0.5
    ),
    "shear_x": _apply(
        lambda size: v2.RandomAffine(0, shear=(-16.7, 16.7), interpolation=_BILINEAR), 0.5
    ),
    "shear_y": _apply(
        lambda size: v2.RandomAffine(0, shear=(0, 0, -16.7, 16.7), interpolation=_BILINEAR), 0.5
    ),
    "translate_x": _apply(
        lambda size: v2.RandomAffine(0, translate=(0.45, 0), interpolation=_BILINEAR), 0.5
    ),
    "translate_y": _apply(
        lambda size: v2.RandomAffine(0, translate=(0, 0.45), interpolation=_BILINEAR), 0.5
    ),
    "rotate": _apply(lambda size: v2.RandomRotation(30, interpolation=_BILINEAR), 0.5),
    "invert": lambda size: v2.RandomInvert(0.2),
    "sharpness": lambda size: v2.RandomAdjustSharpness(1.5, 0.5),
    "gaussian_noise": lambda size: v2.Identity(),  # on the tensor, at the end
    "sobel": _apply(lambda size: _PillowSobel(), 0.2),
    "cutout": lambda size: v2.Identity(),  # on the tensor, at the end
    "solarize": lambda size: v2.RandomSolarize(128, 0.2),
    "equalize": lambda size: v2.RandomEqualize(0.2),
    "posterize": lambda size: v2.RandomPosterize(6, 0.2),
    "motion_blur": _apply(lambda size: _PillowMotionBlur(), 0.5),
}


class TwoViews:
    """Two draws of one transform, as every peer's README shows."""

    def __init__(self, transform: Callable[[Image.Image], Tensor]) -> None:
        self.transform = transform

    def __call__(self, image: Image.Image) -> tuple[Tensor, Tensor]:
        return self.transform(image), self.transform(image)


def image_folder(
    folder: Path, preset: str, size: int, batch: int, workers: int, *, normalize: bool = True
) -> DataLoader[list[Any]]:
    """`ImageFolder`, torchvision transforms on PIL images, in a `DataLoader`."""
    steps = [_TORCHVISION[name](size) for name in PRESETS[preset].operators]
    steps += [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
    if normalize:
        steps.append(v2.Normalize(*IMAGENET))
    transform = TwoViews(v2.Compose(steps))
    return DataLoader(
        ImageFolder(str(folder), transform),
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
