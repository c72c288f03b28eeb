"""Every operator alone: the PyTorch kernel, the compiled one, and what memory alone would take.

    python benchmarks/operators.py [--images 16] [--size 224] [--rounds 7] [--threads 1]

Milliseconds per image, for images that all draw the operator with parameters of their own. The two
warps are those of a crop of a canvas of twice the size, upright and turned. "copy" reads and
writes every image once, which nothing that changes all pixels can beat by much.
"""

import argparse

import numpy as np
import torch
from measure import Work, alternate, report
from torch import Tensor

from mast.augment import OPERATORS, Pipeline, Preset, View
from mast.augment.operators.geometry import GeometricOperator
from mast.core.canvases import Canvases
from mast.data.generated import Factors

GEOMETRY = {
    "crop": ("random_resized_crop", "horizontal_flip"),
    "crop, turned": ("random_resized_crop", "rotate"),
}


def pair(name: str, images_BCHW: Tensor) -> Work:
    """An operator's two kernels on a batch, with parameters drawn once."""
    count, size = len(images_BCHW), images_BCHW.shape[3]
    operator = OPERATORS[name](size)
    parameters = operator.sample(count, torch.Generator().manual_seed(0))
    step = operator.compiled(torch.ones(count, dtype=torch.bool), parameters)
    assert step is not None
    scratch = images_BCHW.clone()
    return {
        "PyTorch": lambda: operator.apply(images_BCHW, parameters),
        "compiled": lambda: step(scratch.numpy(), slice(0, count)),
        "copy": lambda: scratch.copy_(images_BCHW),
    }


def warps(names: tuple[str, ...], canvas_BHWC: Tensor, size: int) -> Work:
    """The two renderings of a geometry that every sample draws."""
    half = len(canvas_BHWC) // 2  # two views of each
    always = View({name: {"probability": 1.0} for name in names})
    both = [Pipeline(Preset(names, (always, always)), size, compiled=c) for c in (False, True)]
    records = both[0].draw(half, torch.Generator().manual_seed(0))
    batch = Canvases.of(canvas_BHWC[:half]), records
    out = both[0].buffer(half, canvas_BHWC.device)
    views = torch.zeros_like(out)
    return {
        "PyTorch": lambda: both[0].views(*batch, out=out),
        "compiled": lambda: both[1].views(*batch, out=out),
        "copy": lambda: out.copy_(views),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    side = 2 * options.size
    source = Factors("train", options.images, side)
    canvas = torch.from_numpy(np.stack([np.asarray(source.open(i)) for i in range(options.images)]))
    images = canvas[:, : options.size, : options.size].permute(0, 3, 1, 2).contiguous() / 255
    work = {case: warps(names, canvas, options.size) for case, names in GEOMETRY.items()}
    for name, operator in OPERATORS.items():
        if not issubclass(operator, GeometricOperator):
            work[name] = pair(name, images)
    device = torch.device("cpu")
    tables = {}
    for case, entries in work.items():
        timed = alternate(entries, options.rounds, device)
        tables[case] = {
            name: {key: value / options.images for key, value in seconds.items()}
            for name, seconds in timed.items()
        }
    report("operators", device, vars(options), tables, "ms an image", "compiled")


if __name__ == "__main__":
    main()
