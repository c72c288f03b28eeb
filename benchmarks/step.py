"""What the host does for a step on a GPU, without one: launches, copies, and its own work.

    python benchmarks/step.py [--recipes mast5_small mast15]

Twice for each recipe: as a step is without what is the default on a GPU (views by PyTorch's
kernels, an optimizer with a kernel an operation and group, every operator launched by itself), and
with it (views by Triton's kernels, a fused optimizer, the forward and the backward pass of a small
step replayed as CUDA graphs; `torch.compile`, which fuses what they launch, is left out). Launches
and bytes are counted on a GPU that is not there, those of the forward and backward pass on fake
tensors of the CPU in mixed precision. The host's own work, decisions and tables, is timed here.
What launches take is computed, from `--launch` microseconds each: that number is an assumption.
"""

import argparse
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from counted import Counted
from fake_gpu import GPU, FakeGPU, Moved, move
from fused import counted as views_counted
from fused import fused
from measure import RESULTS, alternate
from torch._subclasses.fake_tensor import FakeTensorMode

from mast.augment import Pipeline, draw_chosen, draw_views
from mast.augment.fused import chain
from mast.config import PretrainConfig, build_method
from mast.core import graphs
from mast.core.canvases import Canvases
from mast.core.checkpoint import write_json
from mast.core.optim import make_optimizer, set_learning_rate
from mast.core.run import provenance
from mast.core.transfer import packed
from mast.data import canvas_size
from mast.methods import replay as replays
from mast.methods.replay import worth_replaying
from mast.recipes import configure
from mast.runs.cost import empty_views

CPU = torch.device("cpu")
BEFORE, AFTER = "PyTorch's, one by one", "as is the default on a GPU"
NARROW = {"layers": [2, 2, 2, 2], "channels": [8, 8, 8, 8]}  # the layers of a ResNet-18
FEW, SIDE = 4, 32  # images and their side: operators are counted, which do not depend on them


def small(recipe: str) -> PretrainConfig:
    """A recipe with its operators, and little to compute."""
    return configure(
        recipe,
        size=SIDE,
        batch_size=FEW,
        encoder={"name": "timm:resnet18", "options": NARROW},
        objective={"projector": {"hidden": 32, "dim": 64}, "prediction": {"hidden": 8}},
        device="cpu",
    )


def passes(config: PretrainConfig) -> tuple[int, int]:
    """Launches of a forward and backward pass in mixed precision, and the bytes that they move.

    Counted on fake tensors of the CPU, as PyTorch's engine needs a device for those of a GPU.
    """
    with torch.device("meta"):
        method = build_method(config).train()
    pipeline = Pipeline(config.preset, config.size)
    with FakeTensorMode(allow_non_fake_inputs=True):
        method.to_empty(device="cpu").to(memory_format=torch.channels_last)
        views = empty_views(pipeline, config.batch_size, config.encoder.channels)
        views.images = tuple(images.bfloat16() for images in views.images)
        with Moved() as counted:
            with torch.autocast("cpu", torch.bfloat16):
                loss = method(views, 0.0)["loss"]
            loss.backward()
    with Moved() as host:
        packed(method.host_inputs(views, 0.0))
    return counted.launches - host.launches, counted.moved - host.moved


def replayed(config: PretrainConfig) -> int:
    """Operators that are left of a forward and backward pass that is replayed, on the CPU."""
    method = build_method(config).train()
    pipeline = Pipeline(config.preset, config.size)
    canvases = Canvases.of(torch.zeros(FEW, SIDE, SIDE, 3, dtype=torch.uint8))
    views = draw_views(pipeline, canvases, (0, 1), dtype=torch.bfloat16)
    replays_of_a_step = 0

    def record(work: Any, pool: Any = None) -> graphs.Graph[Any]:
        result = work()

        def replay() -> None:
            nonlocal replays_of_a_step
            replays_of_a_step += 1

        return graphs.Graph(result, replay, None)

    with (
        patch.object(graphs, "record", record),
        patch.object(graphs, "warm_up", lambda work, device: None),
        patch.object(replays, "CHECKED", 0),  # a replay is counted here, and does nothing
    ):
        replay = replays.Replay(method, torch.bfloat16, asked=True)
        replay(method, views, 0.0)["loss"].backward()
        method.zero_grad(set_to_none=True)
        replays_of_a_step = 0
        with Counted() as counted:
            replay(method, views, 0.0)["loss"].backward()
    with Counted() as host:
        packed(method.host_inputs(views, 0.0))
    return counted.calls.total() - host.calls.total() + replays_of_a_step


def optimizer_steps(config: PretrainConfig) -> dict[str, tuple[int, int]]:
    """Launches and bytes of a step of the optimizer behind the first one, which makes its state."""
    found = {}
    for name, device in ((BEFORE, CPU), (AFTER, GPU)):
        with torch.device("meta"):
            method = build_method(config)
        groups = method.parameter_groups()
        optimizer = make_optimizer(groups, config.optimizer, config.batch_size, device)
        with FakeGPU() as gpu, patch.object(torch.cuda, "_lazy_init", lambda: None):
            moved = move(method)
            for group in optimizer.param_groups:
                group["params"] = [moved[parameter] for parameter in group["params"]]
                # as PyTorch does for a GPU where nothing is said, and for no fake tensor
                if name == BEFORE or not group.get("fused"):
                    group["foreach"] = True
                for parameter in group["params"]:
                    parameter.grad = torch.empty_like(parameter)
            optimizer.step()
            before = gpu.launches.total(), gpu.moved
            optimizer.step()
            found[name] = gpu.launches.total() - before[0], gpu.moved - before[1]
    return found


def host_seconds(config: PretrainConfig) -> dict[str, float]:
    """Of the host's own work for a step: decisions, tables, what an optimizer does around a launch.

    Launches do nothing: neither those of the views nor the optimizer's.
    """
    method = build_method(small(config.recipe))
    pipeline = Pipeline(config.preset, config.size)
    groups = method.parameter_groups()
    optimizer = make_optimizer(groups, config.optimizer, config.batch_size, GPU)
    for parameter in method.parameters():
        parameter.grad = torch.zeros_like(parameter)
    count, side = config.batch_size, canvas_size(config.size)
    canvases = Canvases.of(torch.zeros(count, side, side, 3, dtype=torch.uint8))
    memory = pipeline.buffer(count, CPU, torch.bfloat16)
    choose = partial(draw_chosen, config.schedule, len(pipeline.names), 0.5)

    def work() -> None:
        set_learning_rate(optimizer, 0.5)
        views = draw_views(pipeline, canvases, (0, 1), choose, out=memory)
        packed(method.host_inputs(views, 0.5))
        optimizer.step()

    for _ in range(2):  # which makes its state
        optimizer.step()
    # all that optimizers launch, but for the norms of LARS, whose results it reads
    kernels = {name for name in dir(torch) if name.startswith(("_foreach_", "_fused_"))}
    kernels -= {"_foreach_norm"}
    with (
        patch.object(chain, "launch", lambda *_: None),
        patch.multiple(torch, **{name: lambda *_, **__: None for name in kernels}),
        fused(pipeline),
    ):
        timed = alternate({"host": lambda: [work() for _ in range(20)]}, 5, CPU)
    return {name: value / 20 for name, value in timed["host"].items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--recipes",
        nargs="+",
        default=["mast5_small", "mast15_small", "mast19_small", "vicreg5_small", "mast15"],
    )
    parser.add_argument("--launch", type=float, default=10.0)
    parser.add_argument("--images", type=int, default=512, help="at most, of a batch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps: dict[str, Any] = {}
    for recipe in options.recipes:
        config = configure(recipe, device="cpu")
        config = configure(recipe, device="cpu", batch_size=min(config.batch_size, options.images))
        sizes = Pipeline(config.preset, config.size).sizes
        views = views_counted(
            config.views, config.batch_size, config.size, canvas_size(config.size)
        )
        launches, moved = passes(config)
        as_graphs = worth_replaying(config.batch_size, sizes)
        through = {BEFORE: launches, AFTER: replayed(small(recipe)) if as_graphs else launches}
        optimizer = optimizer_steps(config)
        host = host_seconds(config)
        ways: dict[str, Any] = {}
        steps[recipe] = {"images": config.batch_size, "own work": host, "ways": ways}
        print(recipe, "own work of the host, ms", {k: round(1e3 * v, 2) for k, v in host.items()})
        for name, kernels in ((BEFORE, "PyTorch"), (AFTER, "Triton")):
            parts = {
                "views": int(views[kernels]["launches"]),
                "forward and backward": through[name],
                "optimizer": optimizer[name][0],
            }
            total = sum(parts.values())
            gigabytes = {
                "views": views[kernels]["GB"],
                "forward and backward": moved / 1e9,
                "optimizer": optimizer[name][1] / 1e9,
            }
            ways[name] = {
                "launches": parts,
                "GB": gigabytes,
                "copies": views[kernels]["copies"] + 1,
                "waits": views[kernels]["waits"],
                "host ms": 1e3 * host["median"] + total * options.launch / 1e3,
            }
            print(recipe, name, ways[name])
    write_json(
        RESULTS / "step.json",
        {"launch us": options.launch, "steps": steps, "provenance": provenance()},
    )


if __name__ == "__main__":
    main()
