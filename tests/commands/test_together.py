"""Pretrainings side by side are those that follow one another."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import configure

import mast
from mast.commands import together
from mast.commands.together import pretrain_together
from mast.core.errors import UserError
from mast.core.run import RunFolder


@pytest.fixture
def configs(photos: Path, tmp_path: Path) -> dict[str, mast.PretrainConfig]:
    recipes = {"ours": "mast5_small", "theirs": "vicreg5_small"}
    return {
        name: configure(photos, tmp_path / name, recipe, device="cpu")
        for name, recipe in recipes.items()
    }


def test_together_equals_one_after_the_other(configs, tmp_path, monkeypatch):
    monkeypatch.setattr(together, "cores", lambda: 2)
    runs = pretrain_together(configs)
    assert [run.path for run in runs.values()] == [tmp_path / name for name in configs]
    for name, config in configs.items():
        alone = mast.pretrain(replace(config, out=str(tmp_path / f"{name} alone"), threads=1))
        expected = load_file(alone.encoder)
        for key, value in load_file(runs[name].encoder).items():
            assert torch.equal(value, expected[key]), (name, key)


def test_a_run_that_fails_is_named_with_its_reason(configs, monkeypatch):
    monkeypatch.setattr(together, "cores", lambda: 2)
    configs["theirs"] = replace(configs["theirs"], batch_size=4096)
    with pytest.raises(UserError, match=r"theirs, .*fewer than one batch of 4096"):
        pretrain_together(configs)


def test_on_one_core_they_follow_one_another(configs, monkeypatch):
    monkeypatch.setattr(together, "cores", lambda: 1)
    monkeypatch.setattr(together, "pretrain", lambda config: RunFolder(config.folder()))
    assert [run.path.name for run in pretrain_together(configs).values()] == ["ours", "theirs"]
