"""Views from images in memory, beside other libraries.

    python benchmarks/augment.py [--images N] [--rounds 5] [--device cpu] [--threads 1]

Generated images of `factors`, 64 different ones, of 375 × 500 pixels for views of 224, as photos of
ImageNet are, and of 152 × 203 for views of 64, which is what is kept of larger ones; every entry
makes one float32 view of each image (ours makes two and is halved), into memory that is there
already where its interface allows that (all but kornia, which gets batches of the size it is
fastest at), all entries in turn, and the table has milliseconds a view. "mast, stretched" has
squares of 9/8 of the view, as versions kept before. On a GPU ours are bfloat16, as training draws
them there.
"""

import argparse
import math
from functools import partial

import numpy as np
import peers
import torch
from data import generated
from measure import Work, alternate, report
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional

from mast.augment import PRESETS, Pipeline
from mast.core.canvases import Canvases

LARGE, SMALL = (375, 500), (152, 203)
CASES = (
    ("mast5", LARGE, 224),
    ("mast15", LARGE, 224),
    ("mast19", LARGE, 224),
    ("mast5", SMALL, 64),
)


def entries(
    preset: str, canvas_BHWC: Tensor, size: int, device: torch.device
) -> dict[str, peers.Augment]:
    """Everything that is compared on one case; on a GPU, what runs there."""
    count = len(canvas_BHWC)
    pipeline = Pipeline(PRESETS[preset], size)
    generator = torch.Generator().manual_seed(0)
    canvas_BHWC = canvas_BHWC.to(device)
    canvases = Canvases.of(canvas_BHWC)
    side = 8 * math.ceil(size * 9 / 64)
    squares_BCSS = functional.resize(canvas_BHWC.permute(0, 3, 1, 2), [side, side], antialias=True)
    stretched = Canvases.of(squares_BCSS.permute(0, 2, 3, 1).contiguous(), canvases.aspect_B)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    buffer = pipeline.buffer(count, device, dtype)
    out = torch.empty(count, 3, size, size)

    # on a CPU kornia's temporaries are memory that glibc keeps up to 32 MB each: 16 images at 224
    part = 16 if device.type == "cpu" and size > 96 else count

    def ours(canvases: Canvases) -> object:
        return pipeline.views(canvases, pipeline.draw(count, generator), out=buffer)

    planes_BCHW = canvas_BHWC.permute(0, 3, 1, 2).contiguous()
    work: dict[str, peers.Augment] = {
        "mast": partial(ours, canvases),
        "mast, stretched": partial(ours, stretched),
        "kornia": peers.kornia(preset, size, planes_BCHW, part),
    }
    if device.type == "cuda":
        return work
    arrays = canvas_BHWC.numpy()
    images = [Image.fromarray(array) for array in arrays]
    work["torchvision, PIL"] = peers.torchvision_pil(preset, size, images, out)
    if preset == "mast5":
        work["torchvision, PIL, box blur"] = peers.torchvision_pil_fast_blur(
            preset, size, images, out
        )
        work["torchvision, tensors"] = peers.torchvision_tensor(preset, size, planes_BCHW, out)
        work["albumentationsx"] = peers.albumentationsx(
            preset, size, np.ascontiguousarray(arrays), out
        )
    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, help="64 on a CPU, 512 on a GPU")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    options.images = options.images or (512 if device.type == "cuda" else 64)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    tables = {}
    for preset, shape, size in CASES:
        height, width = shape
        drawn = np.stack([np.asarray(image)[:height] for image in generated(options.images, width)])
        pixels = drawn[np.arange(options.images) % len(drawn)]
        work: Work = entries(preset, torch.from_numpy(pixels), size, device)
        timed = alternate(work, options.rounds, device)
        views = {name: options.images * (2 if name[:4] == "mast" else 1) for name in work}
        tables[f"{preset}, {height} × {width} to {size} pixels"] = {
            name: {key: value / views[name] for key, value in seconds.items()}
            for name, seconds in timed.items()
        }
    report("augment", device, vars(options), tables, "ms a view", "mast")


if __name__ == "__main__":
    main()
