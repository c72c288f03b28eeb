"""What training costs beside its encoder.

    python benchmarks/train.py [--steps 1] [--batch 64] [--size 64] [--rounds 3] [--device cpu]

Seconds of a step, with two views of every image: the encoder's forward and backward alone, on views
that are there already; whole steps of a recipe (views, encoder, projector, objective, optimizer)
from canvases in memory, in the loop and the precision of `mast pretrain`, and without the heads
that tell what the operators did; its training from a folder of JPEGs of 256 pixels, an epoch after
the first; and the same model, objective, optimizer and loop fed by `ImageFolder`, torchvision and a
`DataLoader` without workers and with two. On a CPU the encoder alone is timed once more, before
the others and before the process was told to keep freed memory as `mast pretrain` does: that is
what it costs elsewhere.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peers
import torch
from data import Ours, write_folder
from measure import alternate, report

from mast.augment import PRESETS, Pipeline, Views
from mast.config import PretrainConfig, build_method, change
from mast.core import loop
from mast.core.launch import make_fabric, type_of
from mast.core.memory import keep_freed_memory
from mast.core.optim import make_optimizer
from mast.data import DataConfig, open_canvas
from mast.recipes import configure
from mast.runs.pretraining import compiles

Run = Callable[[], None]
# In the folder: a worker makes a whole batch, and with one batch all but one would idle.
BATCHES = 2


class Training:
    """The model, objective and optimizer of a recipe, for views that come from anywhere."""

    def __init__(self, config: PretrainConfig, device: torch.device) -> None:
        self.fabric = make_fabric("cuda" if device.type == "cuda" else "cpu")
        self.device = self.fabric.device
        self.dtype = type_of("auto", self.device)
        self.batch_size = config.batch_size
        self.method = build_method(config)
        self.method.encoder.to(memory_format=torch.channels_last)
        if compiles(config, self.device, 1):
            self.method.compile_parts(config.cuda_graphs)
        groups = self.method.parameter_groups()
        self.optimizer = make_optimizer(groups, config.optimizer, config.batch_size, self.device)
        self.preset = config.views
        self.size = config.size
        self.pipeline = Pipeline(PRESETS[config.views], config.size)
        self.buffer = self.pipeline.buffer(config.batch_size, self.device, self.dtype)
        self.generator = torch.Generator().manual_seed(0)
        canvases = open_canvas(f"factors@train:{config.batch_size}", config.size)
        self.canvases = canvases.batch(range(config.batch_size)).to(self.device)
        self.run(self.pairs_from_memory(1), 1)  # on the device from here on

    def run(self, pairs: Iterator[Views], steps: int) -> None:
        """Steps of the loop of `mast pretrain`, one for every pair of views."""
        training = loop.Training(self.method, self.optimizer, 1, steps, lambda progress: 1.0)

        def loss(method: Any, views: Views, *_: int) -> loop.Losses:
            return method(views, 0.0)

        for _ in training.run(self.fabric, lambda epoch, start: pairs, loss):
            self.method.after_step(0.5)

    def pairs_from_memory(self, steps: int) -> Iterator[Views]:
        """Views of canvases that are on the device."""
        for _ in range(steps):
            records = self.pipeline.draw(self.batch_size, self.generator)
            yield self.pipeline.views(self.canvases, records, out=self.buffer)

    def from_memory(self, steps: int) -> Run:
        """Steps from canvases in memory."""
        return lambda: self.run(self.pairs_from_memory(steps), steps)

    def from_folder(self, folder: Path, cache: Path) -> Run:
        """An epoch from canvases that the first one cached."""
        data = DataConfig(str(folder), cache=cache)
        canvases = open_canvas(data, self.size)
        ours = Ours(canvases, self.preset, self.size, self.batch_size, self.device, self.dtype)
        return lambda: self.run(ours.epoch(), BATCHES)

    def from_recipe(self, folder: Path, workers: int) -> Run:
        """An epoch of `peers.image_folder`; the records of its views are drawn for the masks."""
        size, batch = self.size, self.batch_size
        loader = peers.image_folder(folder, self.preset, size, batch, workers, normalize=False)

        def pairs() -> Iterator[Views]:
            for (first, second), _ in loader:
                records = self.pipeline.draw(self.batch_size, self.generator)
                yield Views((first.to(self.device), second.to(self.device)), records)

        return lambda: self.run(pairs(), BATCHES)

    def encoder_alone(self, steps: int) -> Run:
        """Forward, and backward from random gradients, on views that are there."""
        encoder = self.method.encoder
        views = [images.clone() for images in next(self.pairs_from_memory(1)).images]
        gradient_BC = torch.randn(self.batch_size, encoder.dim, device=self.device)

        def run() -> None:
            for _ in range(steps):
                encoder.zero_grad(set_to_none=True)
                with torch.autocast(self.device.type, torch.bfloat16, self.device.type == "cuda"):
                    outputs = [encoder(images).float() for images in views]
                torch.autograd.backward(outputs, [gradient_BC, gradient_BC])

        return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--recipe", default="mast_c5_small")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    shared = {"encoder": {"name": options.encoder}, "size": options.size}
    config = configure(options.recipe, batch_size=options.batch, **shared)
    training = Training(config, device)
    silent = Training(change(config, {"objective.prediction.weight": 0.0}), device)
    steps = options.steps
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_folder(Path(scratch) / "photos", BATCHES * options.batch, 256)
        before = {}
        if device.type == "cpu":
            alone = {"encoder alone, memory not kept": training.encoder_alone(steps)}
            before = per_step(alternate(alone, options.rounds, device), steps)
            keep_freed_memory()
        memory = {
            "encoder alone": training.encoder_alone(steps),
            f"{options.recipe}, from memory": training.from_memory(steps),
            f"{options.recipe}, nothing predicted": silent.from_memory(steps),
        }
        files = {
            f"{options.recipe}, from a folder": training.from_folder(
                folder, Path(scratch) / "cache"
            ),
            "ImageFolder, no workers": training.from_recipe(folder, 0),
            "ImageFolder, workers": training.from_recipe(folder, min(options.threads, BATCHES)),
        }
        timed = alternate(memory | files, options.rounds, device)
    table = per_step({name: timed[name] for name in memory}, steps)
    table |= per_step({name: timed[name] for name in files}, BATCHES) | before
    case = f"{options.encoder}, {options.size} pixels, batch {options.batch}"
    report("train", device, vars(options), {case: table}, "ms a step", "encoder alone")


def per_step(timed: dict[str, dict[str, float]], steps: int) -> dict[str, dict[str, float]]:
    """Seconds of one step where each was measured over several."""
    return {
        name: {key: value / steps for key, value in seconds.items()}
        for name, seconds in timed.items()
    }


if __name__ == "__main__":
    main()
