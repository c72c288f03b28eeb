"""Pretraining's views for your own training loop.

Legend: B images of this process, H height, W width, V side of a view, T numbers of a canvas.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias, final

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import get_worker_info

from mast.augment import PRESETS, Pipeline, Preset, draw_views
from mast.core.arguments import argument, check_fields
from mast.core.canvases import Canvases
from mast.core.collectives import processes, rank
from mast.core.entry import entry
from mast.core.errors import UserError, unknown
from mast.data.canvas import LARGEST, canvas_size
from mast.data.decode import read_image, to_canvas

# A file, or an image: (H, W, 3) or (3, H, W) where it is an array or a tensor.
AnyImage: TypeAlias = str | Path | Image.Image | np.ndarray | Tensor


class Canvas(NamedTuple):
    """A whole image, or a batch of them as PyTorch's loaders stack it.

    Attributes:
        pixels: uint8, (T,) or (B, T): rows of red, green and blue, then zeros up to the T numbers
            that the largest canvas has.
        size: int64, height and width in pixels, (2,) or (B, 2).
        aspect: float32, width / height of the original, () or (B,).
    """

    pixels: Tensor
    size: Tensor
    aspect: Tensor


@final
@dataclass(frozen=True)
class ToCanvas:
    """Shrinks an image as the loader of `mast pretrain` does; for a Dataset's workers.

    Args:
        side: Side of a square with the largest number of pixels of a canvas.
    """

    side: int

    def __post_init__(self) -> None:
        check_fields(self)
        if not 1 <= self.side <= LARGEST:
            raise UserError(f"side: expected 1 to {LARGEST:,} pixels, got {self.side}")

    @entry()
    def __call__(self, image: AnyImage) -> Canvas:
        """Shrink an image to the pixels of a canvas.

        A path is best: a JPEG is then decoded at the smallest scale that suffices. A tensor or an
        array holds uint8, or floats in [0, 1].
        """
        pixels_HWC, aspect = self.read(image)
        pixels_T = torch.zeros(3 * self.side**2, dtype=torch.uint8)
        pixels_T[: pixels_HWC.size] = torch.from_numpy(pixels_HWC.flatten())
        return Canvas(pixels_T, torch.tensor(pixels_HWC.shape[:2]), torch.tensor(aspect))

    def read(self, image: AnyImage) -> tuple[np.ndarray, float]:
        """The canvas (H, W, 3), uint8, and width / height of the image."""
        if isinstance(image, np.ndarray | Tensor):
            tensor = image if isinstance(image, Tensor) else torch.tensor(image)
            image = Image.fromarray(_bytes_BHWC(tensor[None])[0].cpu().numpy())
        return read_image(image, lambda opened: to_canvas(opened, self.side))


@final
class ViewMaker:
    """Draws the views of a batch as `mast pretrain` does, for any training loop.

    The pixels depend only on images, seed and step. With `torch.distributed` every process draws
    its part of the global batch: all processes must pass the same number of images and the same
    step. All operators may act at every step; only `mast pretrain` has the stages of MAST's
    schedule.

    Args:
        views: Name in `mast.augment.PRESETS`, such as "mast5" or "vicreg", or a preset of your own.
        size: Side in pixels of views for which the preset sets none.
        seed: Random seed.
        canvas: Images with more pixels than a square of this side are shrunk once to that many;
            by default 2.75 times `size`, as in pretraining.
        reuse: Whether to draw every batch into the same memory, which is faster on a CPU; each call
            then overwrites the previous views.

    Attributes:
        to_canvas: Turns an image or its path into a `Canvas`.
        step: Step of the next call without a step.
    """

    @entry()
    def __init__(
        self,
        views: str | Preset = "mast5",
        size: int = 224,
        seed: int = 0,
        *,
        canvas: int | None = None,
        reuse: bool = False,
    ) -> None:
        if isinstance(views, str) and views not in PRESETS:
            raise unknown("views", views, PRESETS)
        preset = PRESETS[views] if isinstance(views, str) else views
        self.pipeline = Pipeline(preset.only(preset.operators), size)
        self.to_canvas = ToCanvas(canvas or canvas_size(size))
        self.seed = seed
        self.step = 0
        self._reuse = reuse
        self._memory: Tensor | None = None

    @entry()
    def __call__(
        self, images: Canvas | Tensor | Sequence[AnyImage], step: int | None = None
    ) -> tuple[Tensor, ...]:
        """Draw the views of a batch, float32 (B, 3, V, V), on the device of its pixels.

        Args:
            images: Canvases of `to_canvas`, stacked by a loader; or a tensor (B, H, W, 3) or
                (B, 3, H, W) of uint8, or of floats in [0, 1], which are rounded to 8 bits; or a
                list of images or paths, which are shrunk to canvases on the CPU. Tensors are not
                shrunk.
            step: Training step, counted over all epochs; by default the one after the last call's.
                Required in a worker of a DataLoader.
        """
        if step is None:
            if get_worker_info() is not None:
                raise UserError(
                    "step: required in a worker of a DataLoader, as all workers would draw the "
                    "same views; better pass only to_canvas to the Dataset, and make views in "
                    "the training loop"
                )
            step = self.step
        elif step < 0:
            raise UserError(f"step: expected 0 or more, got {step}")
        canvases = self._canvases(images)
        count = len(canvases)
        if count == 0:
            raise UserError("expected at least one image, got none")
        views = draw_views(
            self.pipeline,
            canvases,
            (self.seed, step, 0),
            start=count * rank(),
            total=count * processes(),
            out=self._buffer(count, canvases.device),
        )
        self.step = step + 1
        return views.images

    def _canvases(self, images: Canvas | Tensor | Sequence[AnyImage]) -> Canvases:
        """A batch of canvases, on the device of the pixels."""
        if isinstance(images, Tensor):
            return Canvases.of(_bytes_BHWC(images))
        if not isinstance(images, Canvas):
            made = [self.to_canvas.read(image) for image in images]
            if not made:
                raise UserError("expected at least one image, got none")
            return Canvases.packed(
                torch.cat([torch.from_numpy(pixels_HWC.flatten()) for pixels_HWC, _ in made]),
                torch.tensor([pixels_HWC.shape[:2] for pixels_HWC, _ in made]),
                torch.tensor([aspect for _, aspect in made]),
            )
        for name, tensor in images._asdict().items():
            argument(tensor, Tensor, name)
        pixels_BT, size_B2, aspect_B = images.pixels, images.size.cpu(), images.aspect.cpu()
        count, room = pixels_BT.shape if pixels_BT.ndim == 2 else (-1, 0)
        fits_B = (size_B2 > 0).all(-1) & (3 * size_B2.prod(-1) <= room)
        if pixels_BT.dtype != torch.uint8 or len(fits_B) != count or not bool(fits_B.all()):
            raise UserError(
                "expected canvases stacked by a DataLoader: pixels (B, T) of uint8 and size "
                f"(B, 2), got {tuple(pixels_BT.shape)} of {pixels_BT.dtype} and {size_B2.tolist()}"
            )
        start_B = torch.arange(count) * room
        return Canvases(pixels_BT.reshape(-1), size_B2.long(), start_B, aspect_B.float())

    def _buffer(self, count: int, device: torch.device) -> Tensor | None:
        """Reused memory for the views of a batch; None without `reuse`."""
        if not self._reuse:
            return None
        wanted = self.pipeline.buffer(count, torch.device("meta")).shape
        if self._memory is None or (self._memory.shape, self._memory.device) != (wanted, device):
            self._memory = self.pipeline.buffer(count, device)
        return self._memory


def _bytes_BHWC(images: Tensor) -> Tensor:
    """Images as uint8, channels last."""
    shape = tuple(images.shape)
    last = images.ndim == 4 and shape[3] == 3
    if images.ndim != 4 or last == (shape[1] == 3):
        raise UserError(f"expected images (B, H, W, 3) or (B, 3, H, W), got the shape {shape}")
    images_BHWC = images if last else images.movedim(1, 3)
    if images.dtype == torch.uint8:
        return images_BHWC
    if not images.is_floating_point():
        raise UserError(f"expected images of uint8, or of floats in [0, 1], got {images.dtype}")
    if images.numel() and not (images.amin() >= 0 and images.amax() <= 1):
        raise UserError(
            f"expected floats in [0, 1], got {images.amin():.3g} to {images.amax():.3g}: divide "
            "values of 0 to 255 by 255, and normalize the views, not the images"
        )
    return images_BHWC.float().mul(255).round_().to(torch.uint8)
