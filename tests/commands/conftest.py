"""A run that commands work on."""

from collections.abc import Callable
from pathlib import Path

import pytest

import mast


@pytest.fixture
def run(tiny: Callable[..., mast.PretrainConfig]) -> Path:
    """The folder of a run of one epoch."""
    return mast.pretrain(tiny(epochs=1)).path
