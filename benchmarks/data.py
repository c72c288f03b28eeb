"""From a folder of JPEGs to normalised pairs of views, beside the recipe of the READMEs.

    python benchmarks/data.py [--images 256] [--batch 128] [--rounds 3] [--threads 1] [--device cpu]

An entry is one whole epoch after the first: ours reads canvases that the first epoch cached, the
recipe (`ImageFolder`, `DataLoader` without workers, torchvision on PIL images) decodes again. Views
of 64 pixels are cut from canvases of 72 by default, so that small crops have less detail than the
recipe's, which are cut from 256; "canvas of 256" has theirs. "in memory" has the canvases there,
where none is verified as those in the cache are. "our views" is the recipe's loop (`ImageFolder`,
`DataLoader` without workers, decoding every epoch) with `mast.ViewMaker` in place of torchvision.
The folder has generated images of `factors`, 64 different ones, as JPEGs of quality 90. Where the
system can do that, the process is bound to as many cores as it has threads: reading ahead is
counted too. On a GPU, our views are drawn there and the recipe's are copied there.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import peers
import torch
from measure import alternate, report
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

from mast import ViewMaker
from mast.augment import PRESETS, Pipeline, Views
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.data.generated import Factors
from mast.data.loader import Loader
from mast.models.encoders import IMAGENET


def generated(images: int, side: int) -> list[Image.Image]:
    """Images of `factors`, at most 64: each takes 0.06 s at 500 pixels."""
    source = Factors("train", images, side)
    return [source.open(index) for index in range(min(images, 64))]


def write_folder(folder: Path, images: int, side: int) -> Path:
    """A class of JPEGs below `folder`, a third wider than high."""
    (folder / "any").mkdir(parents=True)
    drawn = generated(images, side)
    for index in range(images):
        image = drawn[index % len(drawn)].crop((0, 0, side, round(0.75 * side)))
        image.save(folder / "any" / f"{index:05d}.jpg", quality=90)
    return folder


class Ours:
    """Epochs of pairs from the canvas cache, drawn where the step wants them.

    Args:
        canvases: Of the folder.
        preset: Name of the views.
        size: Side of the views in pixels.
        batch: Pairs in a batch.
        device: Where to draw.
        dtype: Of the views.
    """

    def __init__(
        self,
        canvases: CanvasSet,
        preset: str,
        size: int,
        batch: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.device = device
        self.loader = Loader(canvases, batch, seed=0, device=device)
        self.pipeline = Pipeline(PRESETS[preset], size)
        self.buffer = self.pipeline.buffer(batch, device, dtype)
        self.generator = torch.Generator().manual_seed(0)

    def epoch(self) -> Iterator[Views]:
        """One epoch; a pair is overwritten by the next."""
        for batch in self.loader.epoch(0):
            records = self.pipeline.draw(len(batch.canvases), self.generator)
            yield self.pipeline.views(batch.canvases.to(self.device), records, out=self.buffer)

    def normalised(self) -> None:
        """One epoch, normalised as the encoder would."""
        mean_C11, std_C11 = (
            torch.tensor(values, device=self.device)[:, None, None] for values in IMAGENET
        )
        for views in self.epoch():
            for images_BCHW in views.images:
                images_BCHW.sub_(mean_C11).div_(std_C11)


def image_folder(
    folder: Path, preset: str, size: int, batch: int, device: torch.device
) -> Callable[[], None]:
    """An epoch of the recipe's loop, with our views."""
    make = ViewMaker(preset, size, reuse=True)
    mean_C11, std_C11 = (torch.tensor(values, device=device)[:, None, None] for values in IMAGENET)
    images = ImageFolder(str(folder), loader=make.to_canvas)
    loader = DataLoader(images, batch_size=batch, shuffle=True, drop_last=True)

    def epoch() -> None:
        for canvases, _ in loader:
            for view_BCHW in make(canvases._replace(pixels=canvases.pixels.to(device))):
                view_BCHW.sub_(mean_C11).div_(std_C11)

    return epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(options.threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_folder(Path(scratch) / "photos", options.images, 500)
        tables = {}
        for size in (64, 224):
            plain = DataConfig(str(folder), cache=Path(scratch) / "cache")
            canvases = open_canvas(plain, size)
            in_memory = canvases.subset(range(len(canvases)))
            ours, unverified = (
                Ours(kept, "mast5", size, options.batch, device) for kept in (canvases, in_memory)
            )
            recipe = peers.image_folder(folder, "mast5", size, options.batch, workers=0)

            def read(loader=recipe) -> None:
                for (first, second), _ in loader:
                    first.to(device), second.to(device)

            work = {"mast": ours.normalised, "ImageFolder, torchvision": read}
            work["ImageFolder, our views"] = image_folder(
                folder, "mast5", size, options.batch, device
            )
            work["mast, in memory"] = unverified.normalised
            timed = alternate(work, options.rounds, device)
            count = options.images - options.images % options.batch
            tables[f"mast5, pairs of {size} pixels from JPEGs of 375 × 500"] = {
                name: {key: value / count for key, value in seconds.items()}
                for name, seconds in timed.items()
            }
        report("data", device, vars(options), tables, "ms a pair", "mast")


if __name__ == "__main__":
    main()
