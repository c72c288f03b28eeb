"""Features of a set by a frozen encoder, computed once and shared by the protocols.

Images are float in [0, 1]; the encoder normalizes them. B images per batch, N in the set,
D dimensions, H and W pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from mast.augment import center_views
from mast.augment.central import in_unit
from mast.core.arguments import as_list
from mast.core.compute import Compute, autocast
from mast.core.display import doing
from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.fields import check_within
from mast.core.memory import keep_freed_memory
from mast.core.reading import Layout, Reading
from mast.core.transfer import to_device
from mast.data.canvas import CanvasSet
from mast.data.decode import crop_fraction, read_image, to_test_view
from mast.encoders.changes import Change
from mast.models.encoders import check_representation, evaluating

LARGEST = 1e15  # squares of features are summed in float32
GATHERED = 16384  # rows to exchange between processes at a time


@entry()
def open_images(
    images: str | Path | Image.Image | Sequence[str | Path | Image.Image],
    size: int,
    reading: Reading | None = None,
) -> Tensor:
    """Read images as `mast evaluate`, `embed` and `predict` do.

    Args:
        images: One or several files or Pillow images.
        size: Side of the views in pixels, such as `encoder.size` or `classifier.size`.
        reading: Mapping of file values, such as `encoder.reading` or `classifier.reading`; None
            for 8-bit RGB.

    Returns:
        images_BCHW in [0, 1]: the central view of each, with 87.5 % of the short side above 96
        pixels, otherwise all of it; equal to torchvision's `Resize` and `CenterCrop` on Pillow
        images, bit for bit.

    Raises:
        UserError: An image cannot be decoded, or there is none.
    """
    check_within({"size": size}, {"size": "[1, inf)"})
    view = partial(to_test_view, size=size, reading=reading)
    views = [read_image(image, view) for image in as_list(images)]
    if not views:
        raise UserError("there is no image: name one or more")
    layout = (reading or Reading()).layout
    return in_layout(np.stack(views), layout)


def test_views(canvas_set: CanvasSet, indices: range, size: int) -> Tensor:
    """The test views, images_BCHW in [0, 1] on the CPU."""
    views = None if canvas_set.test_views is None else canvas_set.test_views(size)
    if views is None:  # the canvases are the whole images
        return center_views(canvas_set.batch(indices), size, crop_fraction(size))
    layout = canvas_set.reading.layout
    values_T = views.read(np.asarray(indices))
    return in_layout(values_T.reshape(len(indices), 3 * layout.sheets, size, size), layout)


def in_layout(planes_BPVV: np.ndarray, layout: Layout) -> Tensor:
    """Images_BCHW in [0, 1] from the planes (uint8) of a layout."""
    return layout.joined(in_unit(torch.from_numpy(planes_BPVV)))


def represent(encoder: nn.Module, images_BCHW: Tensor, dtype: torch.dtype) -> Tensor:
    """Encode one batch in evaluation mode: representation_BD in float32."""
    with autocast(images_BCHW.device, dtype):
        representation_BD = encoder(images_BCHW)
    check_representation(representation_BD, images_BCHW)
    return representation_BD.float()


def extract(
    encoder: nn.Module,
    canvas_set: CanvasSet,
    size: int,
    compute: Compute | None = None,
    change: Change | None = None,
    keep: Callable[[int, Tensor], None] | None = None,
) -> Tensor:
    """Encode the central view of every image of a set.

    The encoder is moved to the device, and its mode restored afterwards. Features (N, D) are
    float32 on the CPU, equal on all processes. `keep` gets consecutive features as they are
    computed, or with several processes at the end.
    """
    if len(canvas_set) == 0:
        raise UserError(f"the set {canvas_set.name!r} has no images. Give one with images.")
    compute = compute or Compute()
    device, count = compute.place(encoder), len(canvas_set)
    # of even size, as other kernels would process a small last batch
    batch_size = math.ceil(count / math.ceil(count / compute.images_at_once(size)))
    if device.type == "cpu":
        keep_freed_memory()
    starts = range(0, len(canvas_set), batch_size)
    own_starts = starts[compute.rank :: compute.processes]
    # A process without a batch still needs the number of dimensions.
    batches_here = own_starts or starts[:1]
    features_ND = torch.empty(0)
    images = sum(min(batch_size, len(canvas_set) - start) for start in batches_here)
    with (
        evaluating(encoder),
        torch.inference_mode(),
        doing(f"features of {canvas_set.name}", images, "images") as work,
    ):
        for start in batches_here:
            stop = min(start + batch_size, len(canvas_set))
            images_BCHW = to_device(test_views(canvas_set, range(start, stop), size), device)
            if change is not None:
                images_BCHW = change.apply(images_BCHW, torch.arange(start, stop))
            features_BD = represent(encoder, images_BCHW, compute.dtype).cpu()
            if start == batches_here[0]:
                with torch.inference_mode(mode=False):  # so that a probe may differentiate
                    features_ND = torch.zeros(len(canvas_set), features_BD.shape[1])
            if start in own_starts:
                features_ND[start:stop] = features_BD
            if keep is not None and compute.processes == 1 and in_range(features_BD):
                keep(start, features_BD)
            work.advance(stop - start)
    if compute.processes > 1:
        for chunk_RD in features_ND.split(GATHERED):
            chunk_RD.copy_(compute.sum(chunk_RD))
    if not in_range(features_ND):
        bad_N = ~(features_ND.abs() < LARGEST).all(dim=1)
        first = canvas_set.identifiers[int(bad_N.nonzero()[0])]
        raise UserError(
            f"the encoder gave features that are NaN, infinite or beyond {LARGEST:g} for "
            f"{int(bad_N.sum())} of {len(bad_N)} images of {canvas_set.name!r} (the first is "
            f"{first}). Its weights may have diverged: evaluate an earlier checkpoint, or float32 "
            "if this was mixed precision."
        )
    if keep is not None and compute.processes > 1:
        keep(0, features_ND)
    return features_ND


def in_range(features_ND: Tensor) -> bool:
    """Whether all numbers are finite, also when squared."""
    low, high = torch.stack(features_ND.aminmax()).tolist()
    return bool(low > -LARGEST and high < LARGEST)  # NaN is neither
