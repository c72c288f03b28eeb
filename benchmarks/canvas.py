"""How sharp the views of canvases are, beside those of the original photos.

    python benchmarks/canvas.py PHOTOS [--images 128]

Photos are cut to each aspect. Their central views, and three training crops of each, are drawn from
canvases of several widths, and from the originals by torchvision and Pillow. The table has the
gradient energy of the former as a share of the latter's: the mean squared difference of
neighbouring pixels. "stretched" is a square canvas of 9/8 of the view, which versions before kept.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from measure import RESULTS
from PIL import Image
from torch import Tensor
from torchvision.transforms.v2 import functional

from mast.augment import Pipeline, Preset, View, center_views
from mast.augment.operators.geometry import crop_boxes
from mast.core.canvases import Canvases
from mast.core.checkpoint import write_json
from mast.core.display import track
from mast.core.run import provenance
from mast.data import Source, open_source
from mast.data.decode import canvas_shape

SIZES = (64, 128, 224)
ASPECTS = (None, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)  # None: as it is
WIDTHS = (1.5, 2.0, 2.5, 2.75, 3.0, 4.0)  # of a square with as many pixels, in views
STRETCHED = "stretched"
CROPS = 3
CROP = Preset(("random_resized_crop",), (View(),))


def cut(image: Image.Image, aspect: float | None) -> Image.Image:
    """The largest centred part of a shape."""
    width, height = image.size
    if aspect is None:
        return image
    wide, high = min(width, round(height * aspect)), min(height, round(width / aspect))
    left, top = (width - wide) // 2, (height - high) // 2
    return image.crop((left, top, left + wide, top + high))


def canvas_of(image: Image.Image, width: float | str, size: int) -> Canvases:
    """What a set keeps of an image."""
    shape = canvas_shape(*image.size, round(size * width)) if isinstance(width, float) else None
    side = 8 * math.ceil(size * 9 / 64)
    resized = image.resize(shape or (side, side), Image.Resampling.LANCZOS, reducing_gap=3.0)
    pixels_BHWC = torch.from_numpy(np.asarray(resized).copy())[None]
    return Canvases.of(pixels_BHWC, torch.tensor([image.width / image.height]))


def energy(view_CVV: Tensor) -> float:
    along = view_CVV.diff(dim=2).square().mean() + view_CVV.diff(dim=1).square().mean()
    return float(along)


def energies(
    image: Image.Image, size: int, generator: torch.Generator
) -> Iterator[tuple[str, str, float]]:
    """Gradient energies of views: of which kind, from what."""
    pixels_CHW = functional.pil_to_tensor(image)
    resized = math.floor(size / 0.875) if size > 96 else size  # as test views are
    central = functional.resize(pixels_CHW, [resized], antialias=True)
    yield "test", "original", energy(functional.center_crop(central, [size]).float() / 255)
    pipeline, aspect_B = Pipeline(CROP, size), torch.tensor([image.width / image.height])
    records = [pipeline.draw(1, generator) for _ in range(CROPS)]
    for (record,) in records:
        left, top, width, height = crop_boxes(record.parameters["random_resized_crop"], aspect_B)[
            0
        ].tolist()
        box = (
            left * image.width, top * image.height,
            min((left + width) * image.width, image.width),
            min((top + height) * image.height, image.height),
        )  # fmt: skip
        view = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
        yield "train", "original", energy(functional.pil_to_tensor(view).float() / 255)
    for kept in (STRETCHED, *WIDTHS):
        canvases, name = canvas_of(image, kept, size), str(kept)
        yield "test", name, energy(center_views(canvases, size, size / resized)[0])
        for record in records:
            yield "train", name, energy(pipeline.views(canvases, record).images[0][0])
        yield "bytes", name, float(canvases.values_T.nbytes)


def table(source: Source, images: int, size: int, aspect: float | None) -> dict[str, dict]:
    """Of every kind of canvas its bytes, and its views' energies as shares of the originals'."""
    sums: dict[tuple[str, str], float] = {}
    generator = torch.Generator().manual_seed(0)
    chosen = np.random.default_rng(0).permutation(len(source))[:images].tolist()
    shown = track(chosen, f"{size} pixels, aspect {aspect}", len(chosen), "photos")
    for index in shown:
        image = cut(Image.fromarray(source.load(index)), aspect)
        for kind, kept, value in energies(image, size, generator):
            sums[kind, kept] = sums.get((kind, kept), 0.0) + value
    return {
        str(kept): {
            "test": sums["test", str(kept)] / sums["test", "original"],
            "train": sums["train", str(kept)] / sums["train", "original"],
            "kB": sums["bytes", str(kept)] / len(chosen) / 1e3,
        }
        for kept in (STRETCHED, *WIDTHS)
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("photos", type=Path, help="a folder")
    parser.add_argument("--images", type=int, default=128)
    options = parser.parse_args()
    torch.set_num_threads(1)
    source = open_source(options.photos)
    tables = {
        str(size): {
            "own" if aspect is None else f"{aspect:g}": table(source, options.images, size, aspect)
            for aspect in ASPECTS
        }
        for size in SIZES
    }
    sides = [source.load(index).shape[:2] for index in range(0, len(source), 7)]
    pixels = float(np.median(np.prod(sides, axis=1)))
    setting = {"images": min(options.images, len(source)), "median pixels": pixels}
    name = f"canvas-{options.photos.name}.json"
    write_json(RESULTS / name, {"setting": setting, "shares": tables, "provenance": provenance()})


if __name__ == "__main__":
    main()
