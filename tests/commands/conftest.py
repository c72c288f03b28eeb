"""A run that commands work on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mast.core.run import RunFolder


@pytest.fixture
def run(trained: Callable[..., RunFolder], tmp_path: Path) -> Path:
    """The folder of a run of one epoch, to write into."""
    return trained("plain", tmp_path / "run").path
