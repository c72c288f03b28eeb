"""The linear layer by SGD."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tiny import stacked
from tiny_evaluation import QUICK
from torch import nn

from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.data.cache import InMemory
from mast.measure.sets import EvaluationData
from mast.protocols.run import EvaluationSettings, evaluate_encoder


def test_sgd_stops_on_a_loss_that_is_not_finite(encoder: nn.Module, data: EvaluationData) -> None:
    settings = EvaluationSettings(protocols={"linear_sgd": {"learning_rates": (1e9,)}})
    with pytest.raises(UserError, match=r"stopped at step \d+: loss is not finite"):
        evaluate_encoder(encoder, data, ["linear_sgd"], settings)


def test_sets_may_differ_in_canvas(
    encoder: nn.Module, data: EvaluationData, make_set: Callable[..., CanvasSet]
) -> None:
    val = make_set(6, seed=1)
    val = replace(val, pixels=InMemory.of(stacked(val).repeat(2, axis=1).repeat(2, axis=2)))
    (result,) = evaluate_encoder(encoder, replace(data, val=val), ["linear_sgd"], QUICK)
    assert result.targets["class"].values["top1"] > 75
