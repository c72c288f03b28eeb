"""What a training step costs beside its encoder.

    python benchmarks/step.py [--repetitions 3] [--batch 256] [--size 64] [--encoder resnet18]

Alternates, in one process, the whole step of `mast5_small` and of `vicreg5_small` (augmentation,
encoder, projector, losses, optimizer) with the encoder's forward and backward alone on the same
number of views, and writes medians, spreads and ratios to benchmarks/results/step-<device>.json.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from mast.augment import PRESETS, Pipeline
from mast.core.checkpoint import write_json
from mast.core.optim import make_optimizer
from mast.core.run import provenance
from mast.data import open_canvas
from mast.pretrain import PretrainConfig, build_method
from mast.recipes import configure

RESULTS = Path(__file__).parent / "results"


def whole_step(config: PretrainConfig, device: torch.device) -> Callable[[], None]:
    """A function that does one step from canvases in memory to updated weights."""
    canvases = open_canvas("factors@train:4096", config.size)
    canvas_BHWC, aspect_B = canvases.batch(range(config.batch_size))
    canvas_BHWC, aspect_B = canvas_BHWC.to(device), aspect_B.to(device)
    method = build_method(config).to(device)
    method.encoder.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(method.parameter_groups(), config.optimizer, config.batch_size)
    pipeline = Pipeline(PRESETS[config.views], config.size)
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        views = pipeline.views(canvas_BHWC, aspect_B, pipeline.draw(config.batch_size, generator))
        optimizer.zero_grad(set_to_none=True)
        method(views)["loss"].backward()
        optimizer.step()

    return step


def encoder_only(config: PretrainConfig, device: torch.device) -> Callable[[], None]:
    """The encoder's forward and backward on two batches of views that are there already."""
    encoder = build_method(config).encoder.to(device).to(memory_format=torch.channels_last)
    images = torch.rand(2, config.batch_size, 3, config.size, config.size, device=device)

    def step() -> None:
        encoder.zero_grad(set_to_none=True)
        for images_BCHW in images:
            encoder(images_BCHW).sum().backward()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    shared = {"encoder": {"name": options.encoder}, "size": options.size}
    mast5 = configure("mast5_small", batch_size=options.batch, **shared)
    vicreg5 = configure("vicreg5_small", batch_size=options.batch, **shared)
    work = {
        "encoder": encoder_only(mast5, device),
        "mast5_small": whole_step(mast5, device),
        "vicreg5_small": whole_step(vicreg5, device),
    }
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for repetition in range(options.repetitions + 1):
        for name, step in work.items():
            started = time.perf_counter()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if repetition:  # the first is a warm-up
                seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    result = {
        "setting": vars(options),
        "seconds": {
            name: {"median": medians[name], "min": min(values), "max": max(values)}
            for name, values in seconds.items()
        },
        "ratio_to_encoder": {
            name: medians[name] / medians["encoder"] for name in medians if name != "encoder"
        },
        "provenance": provenance(),
    }
    write_json(RESULTS / f"step-{device.type}.json", result)
    for name, median in medians.items():
        print(f"{name:16} {median:8.3f} s   {median / medians['encoder']:.2f} x encoder")


if __name__ == "__main__":
    main()
