"""Two processes measure what one does: features, trained probes, fine-tuned networks."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_evaluation import Colors, tiny_set

from mast.core.launch import make_fabric
from mast.measure.bench import Bench
from mast.measure.compute import Compute
from mast.measure.frozen import FrozenEncoder
from mast.measure.sets import EvaluationData
from mast.protocols.run import EvaluationSettings, evaluate_encoder

PROCESSES = 2
SETTINGS = EvaluationSettings(
    protocols={
        "linear_sgd": {"epochs": 3, "batch_size": 15, "learning_rates": [0.1, 3.0]},
        "semi": {"shares": [0.5], "encoder_lrs": [0.1], "head_lrs": [1.0], "batch_size": 8},
        "finetune": {"changes": {"epochs": 2, "batch_size": 16}},
    }
)
PROTOCOLS = ("knn", *SETTINGS.protocols)


def measure(fabric: Any, workspace: Path | None) -> dict[str, dict[str, Any]]:
    """What each image contributed to the accuracies, and what was chosen."""
    torch.manual_seed(0)
    compute = Compute(batch_size=7, fabric=fabric)
    encoder = FrozenEncoder(Colors(), compute, bench=Bench(compute, workspace))
    data = EvaluationData(tiny_set(20, seed=0), tiny_set(6, seed=1), tiny_set(8, seed=2), 16)
    return {
        result.protocol: {name: (one.values, one.chosen) for name, one in result.targets.items()}
        for result in evaluate_encoder(encoder, data, PROTOCOLS, SETTINGS)
    }


def work(rank: int, folder: str, port: int) -> None:
    """One process, as torchrun would start it."""
    torch.set_num_threads(1)
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "test",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(PROCESSES),
        "LOCAL_WORLD_SIZE": str(PROCESSES),
    }
    fabric = make_fabric("cpu")
    fabric.launch()
    torch.save(measure(fabric, Path(folder)), Path(folder) / f"{rank}.pt")


@pytest.fixture(scope="module")
def ranks(
    tmp_path_factory: pytest.TempPathFactory, in_two_processes: Callable[..., None]
) -> list[dict[str, Any]]:
    """Results of both processes."""
    folder = tmp_path_factory.mktemp("processes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    in_two_processes(work, str(folder), port)
    return [torch.load(folder / f"{rank}.pt") for rank in range(PROCESSES)]


def test_two_processes_measure_what_one_does(ranks: list[dict[str, Any]]) -> None:
    alone = measure(None, None)
    for together in ranks:
        assert together.keys() == alone.keys()
        for protocol, targets in alone.items():
            for target, (values, chosen) in targets.items():
                their_values, their_chosen = together[protocol][target]
                assert their_values == pytest.approx(values, abs=1e-3), (protocol, target)
                assert their_chosen == pytest.approx(chosen, abs=1e-3), (protocol, target)


def test_both_processes_say_the_same(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0] == ranks[1]
