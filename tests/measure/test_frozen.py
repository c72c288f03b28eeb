"""The features of a frozen encoder, and what its bench holds."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_evaluation import complete, working_in
from torch import nn

from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.measure.compute import Compute
from mast.measure.frozen import Bench, FrozenEncoder
from mast.measure.sets import EvaluationData


def test_features_are_taken_once(encoder: nn.Module, make_set: Callable[..., CanvasSet]) -> None:
    frozen, canvases = FrozenEncoder(encoder), make_set(3)
    assert frozen.features(canvases, 16) is frozen.features(canvases, 16)
    assert encoder.calls == 1


def test_the_device_is_where_the_module_is(encoder: nn.Module) -> None:
    assert FrozenEncoder(encoder).device == torch.device("cpu")
    assert FrozenEncoder(encoder.to("meta")).device == torch.device("meta")


def test_other_representations_are_made_once(encoder: nn.Module) -> None:
    bench = complete(encoder).bench
    assert bench.representation("ensemble") is bench.representation("ensemble")
    assert bench.representation("ensemble") is not bench.representation("embedding")
    with pytest.raises(UserError, match="the embedding needs a run folder of `mast`"):
        FrozenEncoder(encoder).bench.representation("embedding")


def test_unfinished_work_is_known_by_what_it_depends_on(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    bench = Bench(Compute(), tmp_path)
    frozen = FrozenEncoder(encoder, bench=bench)
    half = FrozenEncoder(encoder, Compute(dtype=torch.bfloat16), bench=bench)
    other = FrozenEncoder(nn.Linear(2, 2), bench=bench)
    paths = [
        bench.unfinished(frozen, "protocol", data, rate=1),
        bench.unfinished(frozen, "protocol", data, rate=2),
        bench.unfinished(frozen, "another", data, rate=1),
        bench.unfinished(half, "protocol", data, rate=1),
        bench.unfinished(other, "protocol", data, rate=1),
    ]
    assert len(set(paths)) == len(paths)
    assert working_in(tmp_path, encoder).bench.unfinished(frozen, "protocol", data, rate=1) in paths
    assert Bench().unfinished(frozen, "protocol", data) is None
    left = tmp_path / "unfinished" / "of other settings.pt"
    left.parent.mkdir()
    for path in (*paths[:2], left):
        assert path is not None
        path.touch()
    bench.finish()
    assert list(left.parent.iterdir()) == [left]
