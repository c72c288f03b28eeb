"""Where a run writes its metrics."""

from collections.abc import Callable
from importlib.machinery import ModuleSpec

import pytest

import mast


def test_without_tensorboard_a_run_says_where_its_metrics_are(
    tiny: Callable[..., mast.PretrainConfig],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def found(name: str) -> ModuleSpec:
        """A folder of that name, as there is one in every run folder."""
        return ModuleSpec(name, None, is_package=True)

    monkeypatch.setattr("mast.core.loggers.find_spec", found)
    run = mast.pretrain(tiny(epochs=1))
    assert not run.tensorboard.exists()
    assert f"metrics go to {run.metrics}; to TensorBoard with" in capsys.readouterr().err
    assert run.read_metrics()
