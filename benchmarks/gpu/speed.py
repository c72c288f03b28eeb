"""Where a GPU's time goes: its ceilings, views, steps, and profiles of both.

    python benchmarks/gpu/speed.py [--device cuda] [--tiny] [--out results]

Milliseconds, medians of a few rounds; of each also how long the host took, after which the GPU goes
on alone. Written to `results/gpu-speed-DEVICE.json`, and the tables of `torch.profiler` to text
files in the folder `--out`.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # of `paper`
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import WAYS
from measure import RESULTS
from train import Training

from mast.augment import PRESETS, Pipeline
from mast.core.canvases import Canvases
from mast.core.checkpoint import write_json
from mast.core.run import provenance
from mast.recipes import configure
from paper import register

VIEWS = ("mast5", "mast15", "mast19", "vicreg", "dino")
STEPS = (
    ("mast_c15_small", 256, {}),
    ("mast_c15_small", 512, {}),
    ("mast_c15", 256, {}),
    ("mast_c5_distance", 256, {}),
    ("vicreg5", 256, {}),
)


class Clock:
    """Times work on a device.

    Args:
        device: Waited for after every call.
        rounds: Calls that count; three before them warm up.
    """

    def __init__(self, device: torch.device, rounds: int) -> None:
        self.device = device
        self.rounds = rounds
        self.found: dict[str, dict[str, float]] = {}

    def __call__(self, name: str, work: Callable[[], object]) -> None:
        whole, host = [], []
        for turn in range(-3 if self.rounds > 1 else 0, self.rounds):
            self.wait()
            began = time.perf_counter()
            work()
            returned = time.perf_counter()
            self.wait()
            if turn >= 0:
                host.append(returned - began)
                whole.append(time.perf_counter() - began)
        row = {"ms": 1e3 * statistics.median(whole), "host ms": 1e3 * statistics.median(host)}
        if self.device.type == "cuda":
            row["peak GB"] = torch.cuda.max_memory_allocated(self.device) / 1e9
            torch.cuda.reset_peak_memory_stats(self.device)
        self.found[name] = row
        print(name, {key: round(value, 2) for key, value in row.items()}, flush=True)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def ceilings(clock: Clock) -> None:
    """A copy and two products: what no kernel can beat."""
    source = torch.empty(2**31, dtype=torch.uint8, device=clock.device)
    target = torch.empty_like(source)
    clock("copy of 2 GiB", lambda: target.copy_(source))
    for dtype in (torch.bfloat16, torch.float32):
        first, second = (
            torch.randn(8192, 8192, device=clock.device, dtype=dtype) for _ in range(2)
        )
        clock(f"product of 8192 x 8192, {dtype}", partial(torch.matmul, first, second))


def views(clock: Clock, count: int, side: int, size: int) -> None:
    """Views of a batch, as bfloat16, by PyTorch's kernels and by those of the device."""
    pixels_BHWC = torch.randint(256, (count, side, side, 3), dtype=torch.uint8)
    canvases = Canvases.of(pixels_BHWC.to(clock.device))
    generator = torch.Generator().manual_seed(0)
    for preset in VIEWS:
        for name, compiled in (("PyTorch", False), ("compiled", True)):
            pipeline = Pipeline(PRESETS[preset], size, compiled)
            memory = pipeline.buffer(count, clock.device, torch.bfloat16)
            records = pipeline.draw(count, generator)
            work = partial(pipeline.views, canvases, records, memory)
            clock(f"{preset}, {name}: views of {count} at {size}", work)
        clock(f"{preset}: decisions for {count}", partial(pipeline.draw, count, generator))


def steps(clock: Clock, tiny: bool) -> None:
    """Whole steps beside their encoder alone, and small ones, which are bound by the host."""
    shape: dict[str, Any] = {"size": 224, "encoder": {"name": "resnet50"}}
    todo = [("mast_c15_small", 8, {}, {"size": 32})] if tiny else [(*s, shape) for s in STEPS]
    for recipe, batch, objective, options in todo:
        config = configure(recipe, batch_size=batch, objective=objective, **options)
        training = Training(config, clock.device)
        name = f"{recipe} {objective or ''} of {batch}"
        clock(f"{name}: encoder alone", training.encoder_alone(1))
        clock(f"{name}: step", training.from_memory(1))
        del training
    on_gpu = clock.device.type == "cuda"
    for name, compiled, graphs in WAYS if on_gpu else WAYS[:1]:
        changes = {"compile": compiled, "cuda_graphs": graphs, "batch_size": 8 if tiny else 64}
        training = Training(configure("mast_c5_small", **changes), clock.device)
        clock(f"mast_c5_small at 64 pixels, encoder alone, {name}", training.encoder_alone(1))
        clock(f"mast_c5_small at 64 pixels, step, {name}", training.from_memory(1))
        del training


def profiles(clock: Clock, out: Path, tiny: bool) -> None:
    """What takes the time of views and of steps, by `torch.profiler`."""
    cuda = clock.device.type == "cuda"
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    order = "self_cuda_time_total" if cuda else "self_cpu_time_total"
    shape: dict[str, Any] = {"size": 224, "batch_size": 256, "encoder": {"name": "resnet50"}}
    for recipe in ("mast_c5_small", "mast_c15_small", "mast19_small")[: 1 if tiny else 3]:
        training = Training(
            configure(recipe, **({"size": 32, "batch_size": 8} if tiny else shape)), clock.device
        )
        for name, work in (
            ("views", lambda t=training: list(t.pairs_from_memory(3))),
            ("step", training.from_memory(3)),
        ):
            work()
            with profile(activities=kinds) as profiled:
                work()
                clock.wait()
            table = profiled.key_averages().table(sort_by=order, row_limit=40)
            (out / f"profile-{recipe}-{name}.txt").write_text(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    register()
    device = torch.device(options.device)
    clock = Clock(device, rounds=1 if options.tiny else 5)
    if device.type == "cuda":
        ceilings(clock)
    views(clock, *((8, 40, 32) if options.tiny else (512, 256, 224)))
    steps(clock, options.tiny)
    profiles(clock, options.out, options.tiny)
    if not options.tiny:
        result = {"ms": clock.found, "provenance": provenance()}
        write_json(RESULTS / f"gpu-speed-{device.type}.json", result)


if __name__ == "__main__":
    main()
