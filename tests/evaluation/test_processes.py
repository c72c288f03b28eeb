"""Two processes measure what one does: features, trained probes, fine-tuned and found objects."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from tiny_evaluation import Colors, tiny_set
from torch import Tensor

from mast.core.bench import Bench
from mast.core.compute import Compute
from mast.core.launch import make_fabric
from mast.data.store import ImageStore
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder
from paper.annotated import Annotated
from paper.protocols import register
from paper.protocols.detection.average_precision import AveragePrecision, annotated_target
from paper.protocols.detection.data import ObjectData

pytestmark = pytest.mark.slow

PROCESSES = 2
register()  # in each process
SETTINGS = EvaluationSettings(
    protocols={
        "linear_sgd": {"epochs": 3, "batch_size": 15, "learning_rates": [0.1, 3.0]},
        "semi": {"shares": [0.5], "encoder_lrs": [0.1], "head_lrs": [1.0], "batch_size": 7},
        "finetune": {"changes": {"epochs": 2, "batch_size": 15}},
    }
)
PROTOCOLS = ("knn", *SETTINGS.protocols)


class Rank(NamedTuple):
    """What one process has at the end."""

    measured: dict[str, dict[str, Any]]
    shared: Tensor
    precision: dict[str, Any]


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


def share_features(fabric: Any, folder: Path) -> Tensor:
    """Features where the stores of two processes differ: only the first one's has them."""
    store = ImageStore(folder / f"store{fabric.global_rank}")
    test = tiny_set(8, seed=2)
    torch.manual_seed(0)
    if fabric.global_rank == 0:
        FrozenEncoder(Colors(), store=store).features(test, 16)
    return FrozenEncoder(Colors(), Compute(batch_size=7, fabric=fabric), store).features(test, 16)


def precision(source: Annotated, rank: int, processes: int) -> dict[str, Any]:
    """The score of what is annotated, moved a little and not quite surely."""
    collected = AveragePrecision(source, masks=True)
    for index in range(rank, len(source), processes):
        target = annotated_target(source, index, masks=True)
        scores_N = torch.linspace(0.3, 0.9, len(target["labels"])) - 0.02 * index
        guess = {
            "boxes": target["boxes"] + index / 2,
            "labels": target["labels"],
            "masks": target["masks"].bool(),
            "scores": scores_N,
        }
        collected.add(index, guess)
    return dict(collected.measures(SimpleNamespace(world_size=processes)))  # type: ignore[arg-type]


def work(rank: int, folder: str, port: int, source: Annotated) -> None:
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
    one = Rank(
        measure(fabric, Path(folder)),
        share_features(fabric, Path(folder)),
        precision(source, rank, PROCESSES),
    )
    torch.save(tuple(one), Path(folder) / f"{rank}.pt")


@pytest.fixture(scope="module")
def ranks(
    tmp_path_factory: pytest.TempPathFactory,
    object_data: ObjectData,
    in_two_processes: Callable[..., None],
) -> list[Rank]:
    """Both processes, which are started once."""
    folder = tmp_path_factory.mktemp("processes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    in_two_processes(work, str(folder), port, object_data.train)
    return [Rank(*torch.load(folder / f"{rank}.pt")) for rank in range(PROCESSES)]


def test_two_processes_measure_what_one_does(ranks: list[Rank]) -> None:
    alone = measure(None, None)
    assert ranks[0].measured == ranks[1].measured
    assert ranks[0].measured.keys() == alone.keys()
    for protocol, targets in alone.items():
        for target, expected in targets.items():
            for together, one in zip(ranks[0].measured[protocol][target], expected, strict=True):
                assert together == pytest.approx(one, abs=1e-3), (protocol, target)


def test_a_file_that_one_process_lacks_is_extracted_by_all(ranks: list[Rank]) -> None:
    torch.manual_seed(0)
    expected = FrozenEncoder(Colors()).features(tiny_set(8, seed=2), 16)
    for rank in ranks:
        torch.testing.assert_close(rank.shared, expected)


def test_average_precision_is_that_of_all_processes(
    ranks: list[Rank], object_data: ObjectData
) -> None:
    expected = precision(object_data.train, 0, 1)
    assert 0 < expected["objects/ap"] < 100
    assert [rank.precision for rank in ranks] == [expected, expected]
