"""Two processes equal one on the global batch: loss, every gradient, running statistics, the log,
records, and a whole run.

The processes are started once, by torchrun, which runs this file (see `work`).

Tolerance: the projectors pool and return float32 by design, so equality is up to float32
rounding: the loss to 1e-5 of its size, a gradient to 2e-3 of the largest entry of its own tensor
(BatchNorm over eight images amplifies rounding, and the smallest tensors are sums that cancel).
"""

import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tiny import SIZE, build_method, configure, make_views, stop_after
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import mast
from mast.augment import Views
from mast.cli import main
from mast.commands.shard import shard
from mast.core.run import RunFolder
from mast.methods import Method
from mast.models.sync_batchnorm import synchronise_batchnorm
from paper import register

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("baselines")]

PROCESSES, LOCAL, STEPS = 2, 4, 2
BLOCKS = {"exempt": ("color", "position", "orientation"), "exempt_share": 0.2}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "contrast": ("mast_c", {}, BLOCKS),
    "distance": ("mast_c", {}, {"compare": "distance", **BLOCKS}),
    "mast": ("mast", {"pool": "after"}, {}),
    "printed": ("mast", {"pool": "before"}, {"printed": True}),
    "handcrafted": ("mast", {"pool": "average"}, {"masks": "handcrafted"}),
    "vicreg": ("vicreg", {}, {}),
    "augself": ("vicreg", {}, {"predicted": BLOCKS["exempt"]}),
    "simclr": ("simclr", {}, {}),
    "moco v2": ("moco_v2", {}, {"queue": 20}),
    "moco v3": ("moco_v3", {}, {}),
    "simsiam": ("simsiam", {}, {"predicted": BLOCKS["exempt"]}),
    "vi-simsiam": ("vi_simsiam", {}, {}),
    "byol": ("byol", {}, {}),
    "barlow twins": ("barlow_twins", {}, {}),
    "lejepa": ("lejepa", {}, {"directions": 8}),
    "visreg": ("visreg", {}, {"directions": 8}),
    "swav": ("swav", {}, {"prototypes": 6, "frozen": 0.0}),
    "mae": ("mae", {}, {"dim": 16, "depth": 1, "heads": 2}),
    "prcl": ("prcl", {}, {"queue": 20}),
    "supervised": ("supervised", {}, {"classes": 3}),
    "looc": ("looc", {}, {"queue": 20}),
    "clsa": ("clsa", {}, {"queue": 20}),
    "infomin": ("infomin", {}, {"queue": 20}),
    # Each process has all words: variances that nothing reads are corrected for twice as many.
    "obow": ("obow", {}, {"words": 200}),
    "dino": ("dino", {}, {"prototypes": 6, "frozen": 0.0}),
}
COMPILED = "augself"  # the case that is compiled as well


def global_views(case: str) -> Views:
    """The global batch; samples differ in how many operators were applied to them."""
    count = {"looc": 4, "clsa": 3, "infomin": 3}.get(case, 2)
    batch = make_views(1, count)
    batch.aspect_B = torch.linspace(0.7, 1.7, PROCESSES * LOCAL)
    return batch


def part_of(views: Views, rank: int) -> Views:
    """The samples of one process."""
    own = slice(rank * LOCAL, (rank + 1) * LOCAL)
    return Views(
        tuple(images[own] for images in views.images),
        tuple(record[own] for record in views.records),
        aspect_B=views.aspect_B[own],
        label_B=views.label_B[own],
    )


def run(method: torch.nn.Module, plain: Method, views: Views) -> dict[str, Any]:
    """Forward and backward `STEPS` times; loss and gradients of the last, buffers after it."""
    for _ in range(STEPS):
        plain.zero_grad(set_to_none=True)
        output = method(views, 0.5)
        output["loss"].backward()
        if hasattr(plain, "teacher"):  # which follows a step
            with torch.no_grad():
                for parameter in plain.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(1e-3 * parameter.grad)
        plain.after_step(0.5)
    return {
        "losses": {name: value.detach() for name, value in output.items()},
        "gradients": {
            name: parameter.grad
            for name, parameter in plain.named_parameters()
            if parameter.grad is not None
        },
        "buffers": dict(plain.named_buffers()),
    }


def run_compiled(case: str, views: Views) -> dict[str, Any]:
    """Likewise, as captured for `torch.compile`; "graphs" says of each whether it convolves.

    A collective that cannot be part of a graph is an error.
    """
    graphs: list[bool] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        graphs.append(any("conv2d" in str(node.target) for node in graph.graph.nodes))
        return graph.forward

    plain = build_method(*CASES[case])
    synchronise_batchnorm(plain, torch.device("cpu"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", partial(torch.compile, backend=backend, fullgraph=True))
        plain.compile_parts()
        return {**run(wrapped(plain), plain, views), "graphs": graphs}


def wrapped(plain: Method) -> DistributedDataParallel:
    """As a run of several processes wraps a method."""
    return DistributedDataParallel(plain, gradient_as_bucket_view=True, static_graph=True)


def work(folder: Path) -> None:
    """One process: every case on its half of the batch, then its half of a run."""
    register()
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=PROCESSES
    )
    results = {}
    for case, arguments in CASES.items():
        plain = build_method(*arguments)
        synchronise_batchnorm(plain, torch.device("cpu"))
        views = part_of(global_views(case), rank)
        results[case] = run(wrapped(plain), plain, views)
    results["compiled"] = run_compiled(COMPILED, part_of(global_views(COMPILED), rank))
    torch.save(results, folder / f"{rank}.pt")
    dist.destroy_process_group()
    for name, place in (("one", "two"), ("shards", "shards")):
        config, out = str(folder / name / "config.yaml"), str(folder / place)
        assert main(["pretrain", "--config", config, "--out", out]) == 0


@pytest.fixture(scope="module")
def folder(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both processes wrote, beside the run of one process."""
    folder = tmp_path_factory.mktemp("processes")
    mast.pretrain(configure(photos, folder / "one", epochs=1, log_every=1))
    shards = shard(photos / "train", folder / "set", size=SIZE, images=20)
    data = {"spec": f"shards:{shards.path}", "shuffle": 30}
    options = {"batch_size": 8, "epochs": 2, "log_every": 1, "score_every": 9}
    stop_after(2, configure(photos, folder / "shards", **options | {"data": data}))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(PROCESSES)]
    command += ["--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command += [__file__, str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder / "cache")}
    environment["PYTHONPATH"] = str(Path(__file__).parent.parent)  # of `paper`
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    """Results of both processes."""
    return [torch.load(folder / f"{rank}.pt") for rank in range(PROCESSES)]


@pytest.mark.parametrize("case", [*CASES, "compiled"])
def test_two_processes_equal_one_on_the_global_batch(
    case: str, ranks: list[dict[str, Any]]
) -> None:
    case_or_same = COMPILED if case == "compiled" else case
    plain = build_method(*CASES[case_or_same])
    expected = run(plain, plain, global_views(case_or_same))
    results = [rank[case] for rank in ranks]
    for name, value in expected["losses"].items():  # what is logged is the mean over processes
        mean = torch.stack([result["losses"][name] for result in results]).mean()
        rtol = 1e-5 if name == "loss" else 1e-4
        torch.testing.assert_close(mean, value, rtol=rtol, atol=1e-6, msg=name)
    for result in results:
        assert result["gradients"].keys() == expected["gradients"].keys()
        largest = max(gradient.abs().max() for gradient in expected["gradients"].values())
        for name, gradient in expected["gradients"].items():
            difference = (result["gradients"][name] - gradient).abs().max()
            allowed = 2e-3 * gradient.abs().max() + 1e-5 * largest
            assert difference <= allowed, f"{name}: {difference} of {gradient.abs().max()}"
        for name, value in expected["buffers"].items():
            assert torch.allclose(result["buffers"][name], value, rtol=1e-4, atol=1e-5), name


def test_processes_compile_what_one_does(ranks: list[dict[str, Any]]) -> None:
    """Encoder, projector, objective and heads are a graph each."""
    convolves = [True, False, False, False]
    assert [rank["compiled"]["graphs"] for rank in ranks] == [convolves] * PROCESSES


def test_processes_end_with_the_same_gradients(ranks: list[dict[str, Any]]) -> None:
    for case in CASES:
        first, second = (rank[case]["gradients"] for rank in ranks)
        assert all(torch.equal(first[name], second[name]) for name in first), case


def test_a_run_by_torchrun_equals_one_process(folder: Path) -> None:
    one, two = RunFolder(folder / "one"), RunFolder(folder / "two")
    alone, together = (
        [line["loss"] for line in run.read_metrics() if "loss" in line] for run in (one, two)
    )
    assert together == pytest.approx(alone, rel=0.01)
    assert two.encoder.is_file()
    scores = [
        [line for line in run.read_metrics() if "online/knn" in line][-1] for run in (one, two)
    ]
    assert scores[1]["online/effective_rank"] == pytest.approx(
        scores[0]["online/effective_rank"], rel=0.02
    )


def test_a_run_on_shards_goes_on_with_another_number_of_processes(folder: Path) -> None:
    """Who sees what is in `data/shards/test_stream.py`."""
    run = RunFolder(folder / "shards")
    lines = [line for line in run.read_metrics() if "loss" in line]
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert all(map(math.isfinite, (line["loss"] for line in lines)))
    assert run.encoder.is_file()


if __name__ == "__main__":
    work(Path(sys.argv[1]))
