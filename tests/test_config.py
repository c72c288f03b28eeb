"""Configurations: recipe, file and options, and what a run was."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pytest
import yaml

import mast
from mast.cli import main
from mast.config import ENDLESS, change, read, record
from mast.core import fields
from mast.core.errors import UserError
from mast.core.run import plain
from mast.methods import METHODS
from mast.recipes import FULL, RECIPES, configure
from paper.methods.recipes import RECIPES as OF_PAPER
from paper.studies.rival import rival

Configure = Callable[..., mast.PretrainConfig]


def test_a_file_changes_its_recipe_and_options_change_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("recipe: mast_c15_small\nepochs: 7\noptimizer: {lr: 0.01}\n")
    main(["show", "config", "--config", str(file), "--epochs", "9"])
    shown = yaml.safe_load(capsys.readouterr().out)
    recipe = RECIPES["mast_c15_small"]()
    assert (shown["epochs"], shown["optimizer"]["lr"]) == (9, 0.01)
    assert (shown["views"], shown["batch_size"]) == (recipe.views, recipe.batch_size)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recipe: mast_c5_small\nepoch: 3\n", "Did you mean 'epochs'"),
        ("method: vicrig\n", "Did you mean 'vicreg'"),
        ("lr: 3\n", "unknown field 'lr'. Did you mean 'optimizer.lr'"),
        ("epochs: many\n", "epochs: expected a whole number, got 'many'"),
        ("recipe: [mast5]\n", "unknown recipe"),
    ],
)
def test_a_wrong_file_is_refused_and_named(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    assert main(["show", "config", "--config", str(file)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith(f"error: {file}")


BAD = (float("nan"), float("inf"), -float("inf"))


@pytest.mark.parametrize("method", METHODS)
def test_numbers_are_finite(method: str) -> None:
    config = change(configure("mast_c5_small"), {"method": method})
    for name, hint in fields.kinds(config).items():
        if not {int, float} & {hint, *get_args(hint)} or (
            method != "mast" and not name.startswith("objective.")
        ):
            continue
        for value in BAD:
            if value == float("inf") and name in ENDLESS:
                change(config, {name: value})
                continue
            with pytest.raises(UserError, match=re.escape(name)):
                change(config, {name: value})


def test_a_run_stays_what_it_was(tiny: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file does not say has its plain default, whatever the recipe says."""
    config = tiny(epochs=1)
    folder = mast.pretrain(config)
    written = read(folder.config)
    values = yaml.safe_load(folder.config.read_text())
    del values["compile"], values["optimizer"]["momentum"]
    monkeypatch.setitem(RECIPES, values["recipe"], lambda: replace(config, compile=True, epochs=77))
    folder.config.write_text(yaml.safe_dump(values))
    assert read(folder.config) == written


@pytest.mark.parametrize("name", [*RECIPES, *OF_PAPER])
@pytest.mark.usefixtures("baselines")
def test_recipes_survive_yaml(name: str, tmp_path: Path) -> None:
    config = RECIPES[name]()
    config.check_trainable()
    assert "&" not in yaml.safe_dump(record(config))
    assert config.recipe == name
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({**plain(config), "method": config.method}))
    assert read(file) == config
    file.write_text(yaml.safe_dump(record(config)))
    assert record(read(file)) == record(config)


def test_imagenet_recipes_are_the_papers() -> None:
    for name in FULL:
        config = RECIPES[name]()
        if config.method not in ("mast", "mast_c", "vicreg"):
            continue
        of_simclr = getattr(config.objective, "compare", "") == "contrast"
        rate, hidden = (2.4, 2048) if of_simclr else (1.6, 8192)
        assert config.optimizer.lr * config.batch_size / 256 == rate
        assert (config.epochs, config.batch_size, config.size) == (1000, 2048, 224)
        assert config.optimizer.name.startswith("lars")
        assert config.optimizer.weight_decay == 1e-6
        assert config.encoder.name == "resnet50"
        assert config.objective.projector.hidden == hidden


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    lr, seed = np.logspace(-2, 0, 3)[1], np.arange(3)[1]
    config = configure("simclr_small", optimizer={"lr": np.float32(0.5)}, seed=seed)
    config = replace(config, epochs=seed, optimizer=replace(config.optimizer, lr=lr))
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(record(config)))
    assert read(file) == configure("simclr_small", optimizer={"lr": 0.1}, seed=1, epochs=1)


def test_a_run_is_compared_with_vicreg_of_its_scale() -> None:
    for name in ("small", "medium"):
        other, own = cast(Any, rival(RECIPES[f"mast_c5_{name}"]())), RECIPES[f"vicreg5_{name}"]()
        assert (other.objective, other.optimizer) == (own.objective, own.optimizer)
    other = rival(change(RECIPES["mast_c5_distance_small"](), {"objective.projector.dim": 64}))
    assert cast(Any, other).objective.projector.dim == 64
