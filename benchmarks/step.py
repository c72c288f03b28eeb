"""What the host does for a step on a GPU, without one: launches, copies, and its own work.

    python benchmarks/step.py [--recipes mast5_small mast15_small mast19_small vicreg5_small]

Twice for each recipe: as a step is without what is the default on a GPU (views by PyTorch's
kernels, an optimizer with a kernel an operation and group, every operator launched by itself), and
with it (views by Triton's kernels, a fused optimizer, the forward and the backward pass replayed as
CUDA graphs; `torch.compile`, which fuses what a graph launches, is left out). Launches of the views
and of the optimizer are counted on a GPU that is not there, those of the forward and backward pass
as operators that reach a kernel of the CPU in mixed precision. The host's own work, decisions and
tables, is timed here. What launches take is computed, from `--launch` microseconds each: that
number is an assumption.
"""

import argparse
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from counted import Counted
from fake_gpu import GPU, FakeGPU, move
from fused import counted as views_counted
from fused import fused
from measure import RESULTS, alternate
from torch import Tensor

from mast.augment import Pipeline, draw_chosen, draw_views
from mast.augment.fused import chain
from mast.config import PretrainConfig, build_method
from mast.core import graphs
from mast.core.checkpoint import write_json
from mast.core.optim import make_optimizer, set_learning_rate
from mast.core.run import provenance
from mast.core.transfer import packed
from mast.data import canvas_size
from mast.methods.replay import Replay
from mast.recipes import configure

CPU = torch.device("cpu")
BEFORE, AFTER = "PyTorch's, one by one", "as is the default on a GPU"
NARROW = {"layers": [2, 2, 2, 2], "channels": [8, 8, 8, 8]}  # the layers of a ResNet-18
FEW, SIDE = 4, 32  # images and their side: operators are counted, which do not depend on them


def small(recipe: str) -> PretrainConfig:
    """A recipe with its layers and operators, and little to compute."""
    return configure(
        recipe,
        size=SIDE,
        batch_size=FEW,
        encoder={"name": "timm:resnet18", "options": NARROW},
        objective={"projector": {"hidden": 32, "dim": 64}, "prediction": {"hidden": 8}},
        device="cpu",
    )


def passes(config: PretrainConfig) -> dict[str, int]:
    """Operators of a forward and backward pass that reach a kernel, and what a replay leaves."""
    method = build_method(config).train()
    pipeline = Pipeline(config.preset, config.size)
    memory = pipeline.buffer(FEW, CPU, torch.bfloat16)

    def views() -> Any:
        canvases = (torch.zeros(FEW, SIDE, SIDE, 3, dtype=torch.uint8), torch.ones(FEW))
        return draw_views(pipeline, [canvases], (0, 1), out=memory)

    def plain(views: Any, progress: float) -> dict[str, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            output: dict[str, Tensor] = method(views, progress)
        return output

    plain(views(), 0.0)["loss"].backward()
    method.zero_grad(set_to_none=True)
    drawn = views()
    with Counted() as one_by_one:
        plain(drawn, 0.0)["loss"].backward()
    replayed = 0

    def record(work: Any, pool: Any = None) -> graphs.Graph[Any]:
        result = work()

        def replay() -> None:
            nonlocal replayed
            replayed += 1

        return graphs.Graph(result, replay, None)

    with (
        patch.object(graphs, "record", record),
        patch.object(graphs, "warm_up", lambda work, device: work()),
    ):
        replay = Replay(method, torch.bfloat16, asked=True)
        replay(plain, drawn, 0.0)["loss"].backward()
        method.zero_grad(set_to_none=True)
        replayed = 0
        with Counted() as as_a_graph:
            replay(plain, drawn, 0.0)["loss"].backward()
    with Counted() as host:
        packed(method.given(drawn, 0.0))
    counts = {BEFORE: one_by_one.calls.total(), AFTER: as_a_graph.calls.total() + replayed}
    return {name: count - host.calls.total() for name, count in counts.items()}


def optimizer_steps(config: PretrainConfig) -> dict[str, int]:
    """Launches of a step of the optimizer, behind the first one, which makes its state."""
    found = {}
    for name, device in ((BEFORE, CPU), (AFTER, GPU)):
        method = build_method(config)
        groups = method.parameter_groups()
        optimizer = make_optimizer(groups, config.optimizer, config.batch_size, device)
        with FakeGPU() as gpu, patch.object(torch.cuda, "_lazy_init", lambda: None):
            moved = move(method)
            for group in optimizer.param_groups:
                group["params"] = [moved[parameter] for parameter in group["params"]]
                if name == BEFORE:  # as PyTorch does where nothing is said; fake tensors have to
                    group["foreach"] = True
                for parameter in group["params"]:
                    parameter.grad = torch.empty_like(parameter)
            optimizer.step()
            before = gpu.launches.total()
            optimizer.step()
            found[name] = gpu.launches.total() - before
    return found


def host_seconds(config: PretrainConfig) -> dict[str, float]:
    """Of the host's own work for a step: decisions, tables, what an optimizer does around a launch.

    Launches do nothing, and the optimizer's are few and over narrow layers.
    """
    method = build_method(small(config.recipe))
    pipeline = Pipeline(config.preset, config.size)
    groups = method.parameter_groups()
    optimizer = make_optimizer(groups, config.optimizer, config.batch_size, GPU)
    for parameter in method.parameters():
        parameter.grad = torch.zeros_like(parameter)
    count, side = config.batch_size, canvas_size(config.size)
    canvases = (torch.zeros(count, side, side, 3, dtype=torch.uint8), torch.ones(count))
    memory = pipeline.buffer(count, CPU, torch.bfloat16)
    choose = partial(draw_chosen, config.schedule, len(pipeline.names), 0.5)

    def work() -> None:
        set_learning_rate(optimizer, 0.5)
        views = draw_views(pipeline, [canvases], (0, 1), choose, out=memory)
        packed(method.given(views, 0.5))
        optimizer.step()

    with patch.object(chain, "launch", lambda *_: None), fused(pipeline):
        timed = alternate({"host": lambda: [work() for _ in range(20)]}, 5, CPU)
    return {name: value / 20 for name, value in timed["host"].items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--recipes",
        nargs="+",
        default=["mast5_small", "mast15_small", "mast19_small", "vicreg5_small"],
    )
    parser.add_argument("--launch", type=float, default=10.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps: dict[str, Any] = {}
    for recipe in options.recipes:
        config, whole = small(recipe), configure(recipe, device="cpu")
        views = views_counted(config.views, whole.batch_size)
        launches = {
            "views": {BEFORE: views["PyTorch"]["launches"], AFTER: views["Triton"]["launches"]},
            "forward and backward": passes(config),
            "optimizer": optimizer_steps(config),
        }
        host = host_seconds(whole)
        steps[recipe] = {}
        for name, kernels in ((BEFORE, "PyTorch"), (AFTER, "Triton")):
            parts = {part: int(of[name]) for part, of in launches.items()}
            total = sum(parts.values())
            steps[recipe][name] = {
                **parts,
                "launches": total,
                "copies": views[kernels]["copies"] + 1,
                "waits": views[kernels]["waits"],
                "host ms": 1e3 * host["median"] + total * options.launch / 1e3,
            }
            print(recipe, name, steps[recipe][name])
        print(recipe, "own work of the host, ms", {k: round(1e3 * v, 2) for k, v in host.items()})
        steps[recipe]["own work"] = host
    write_json(
        RESULTS / "step.json",
        {"launch us": options.launch, "steps": steps, "provenance": provenance()},
    )


if __name__ == "__main__":
    main()
