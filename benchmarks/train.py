"""What training costs beside its encoder.

    python benchmarks/train.py [--steps 1] [--batch 256] [--size 64] [--rounds 3] [--device cpu]

Every entry does as many steps as the others, with two views of every image: the encoder's forward
and backward alone, on views that are there already; whole steps of `mast5_small` (views, encoder,
projector, objective, optimizer) from canvases in memory; its training from a folder of JPEGs of 256
pixels, an epoch after the first; and the same model, objective and optimizer fed by `ImageFolder`,
torchvision and a `DataLoader` without workers and with as many as there are threads. On a CPU the
encoder alone is timed a second time, before the process was told to keep freed memory, as
`mast pretrain` does: that is what it costs elsewhere.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import peers
import torch
from data import write_folder
from measure import alternate, report

from mast.augment import PRESETS, Pipeline, Views
from mast.core.memory import keep_freed_memory
from mast.core.optim import make_optimizer
from mast.data import DataConfig, Loader, open_canvas
from mast.pretrain import PretrainConfig, build_method
from mast.recipes import configure

Run = Callable[[], None]


class Training:
    """The model, objective and optimizer of a recipe, for views that come from anywhere."""

    def __init__(self, config: PretrainConfig, device: torch.device) -> None:
        self.device = device
        self.batch_size = config.batch_size
        self.method = build_method(config).to(device)
        self.method.encoder.to(memory_format=torch.channels_last)
        groups = self.method.parameter_groups()
        self.optimizer = make_optimizer(groups, config.optimizer, config.batch_size)
        self.pipeline = Pipeline(PRESETS[config.views], config.size)
        self.buffer = self.pipeline.buffer(config.batch_size, device)
        self.generator = torch.Generator().manual_seed(0)

    def run(self, pairs: Iterator[Views]) -> None:
        """One step for every pair of views."""
        for views in pairs:
            self.optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device.type, torch.bfloat16, self.device.type == "cuda"):
                loss = self.method(views)["loss"]
            loss.backward()
            self.optimizer.step()

    def from_memory(self, steps: int) -> Run:
        """Steps from canvases that are on the device."""
        canvases = open_canvas("factors@train:4096", self.pipeline.size)
        canvas_BHWC, aspect_B = (
            tensor.to(self.device) for tensor in canvases.batch(range(self.batch_size))
        )

        def pairs() -> Iterator[Views]:
            for _ in range(steps):
                records = self.pipeline.draw(self.batch_size, self.generator)
                yield self.pipeline.views(canvas_BHWC, aspect_B, records, out=self.buffer)

        return lambda: self.run(pairs())

    def from_folder(self, folder: Path, cache: Path) -> Run:
        """An epoch from canvases that the first one cached."""
        canvases = open_canvas(DataConfig(str(folder), cache=cache), self.pipeline.size)
        loader = Loader(canvases, self.batch_size, seed=0)

        def pairs() -> Iterator[Views]:
            for batch in loader.epoch(0):
                records = self.pipeline.draw(self.batch_size, self.generator)
                canvas_BHWC = batch.canvas_BHWC.to(self.device, non_blocking=True)
                aspect_B = batch.aspect_B.to(self.device, non_blocking=True)
                yield self.pipeline.views(canvas_BHWC, aspect_B, records, out=self.buffer)

        return lambda: self.run(pairs())

    def from_recipe(self, folder: Path, workers: int) -> Run:
        """An epoch of `peers.image_folder`; the records of its views are drawn for the masks."""
        size = self.pipeline.size
        loader = peers.image_folder(folder, "mast5", size, self.batch_size, workers)

        def pairs() -> Iterator[Views]:
            for (first, second), _ in loader:
                records = self.pipeline.draw(self.batch_size, self.generator)
                images = first.to(self.device), second.to(self.device)
                yield Views(images, records)

        return lambda: self.run(pairs())

    def encoder_alone(self, steps: int) -> Run:
        """Forward and backward on views that are there."""
        encoder, views = self.method.encoder, torch.rand_like(self.buffer).chunk(2)

        def run() -> None:
            for _ in range(steps):
                encoder.zero_grad(set_to_none=True)
                with torch.autocast(self.device.type, torch.bfloat16, self.device.type == "cuda"):
                    loss = sum(encoder(images).float().sum() for images in views)
                loss.backward()

        return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    shared = {"encoder": {"name": options.encoder}, "size": options.size}
    config = configure("mast5_small", batch_size=options.batch, **shared)
    training = Training(config, device)
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_folder(Path(scratch) / "photos", options.steps * options.batch, 256)
        before = {}
        if device.type == "cpu":
            alone = training.encoder_alone(options.steps)
            before = alternate({"encoder alone, memory not kept": alone}, options.rounds, device)
            keep_freed_memory()
        work = {
            "encoder alone": training.encoder_alone(options.steps),
            "mast5_small, from memory": training.from_memory(options.steps),
            "mast5_small, from a folder": training.from_folder(folder, Path(scratch) / "cache"),
            "ImageFolder, no workers": training.from_recipe(folder, 0),
            "ImageFolder, workers": training.from_recipe(folder, options.threads),
        }
        timed = alternate(work, options.rounds, device) | before
    per_step = {
        name: {key: value / options.steps for key, value in seconds.items()}
        for name, seconds in timed.items()
    }
    case = f"{options.encoder}, {options.size} pixels, batch {options.batch}"
    report("train", device, vars(options), {case: per_step}, "ms a step", "encoder alone")


if __name__ == "__main__":
    main()
