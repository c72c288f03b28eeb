"""A tiny labelled set and an encoder that sees it, shared by the tests of the protocols."""

from collections.abc import Callable

import pytest
import torch
from tiny_evaluation import SIDE, Colors, complete, tiny_set

from mast.data import CanvasSet
from mast.evaluate import EvaluationData, FrozenEncoder


@pytest.fixture
def frozen() -> Callable[..., FrozenEncoder]:
    return complete


@pytest.fixture
def encoder() -> Colors:
    return Colors()


@pytest.fixture
def make_set() -> Callable[..., CanvasSet]:
    return tiny_set


@pytest.fixture
def data() -> EvaluationData:
    return EvaluationData(tiny_set(20, seed=0), tiny_set(6, seed=1), tiny_set(8, seed=2), SIDE)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
