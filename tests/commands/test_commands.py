"""Every command through its command line and its function, on real files."""

import hashlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import timm
import torch
import torchvision
import yaml
from layouts import write_coco, write_pets
from rich.console import Console
from safetensors.torch import load_file
from torch import nn

import mast
from mast.cli import TOPICS, VERBS, Verb, arguments_of, main
from mast.config import read, record
from mast.core.errors import UserError
from mast.core.run import RunFolder, plain
from mast.data import cache
from mast.data.sources import default_cache
from mast.measure.result import Result
from mast.measure.sets import EvaluationData
from mast.methods import MastConfig
from mast.methods.mast_config import MODES
from mast.models import Encoder, EncoderConfig, save_encoder
from mast.protocols import EVALUATORS
from mast.protocols.run import evaluate_encoder
from mast.recipes import FULL, RECIPES, configure
from mast.runs.load import load
from mast.studies import QUESTIONS, STUDIES

Configure = Callable[..., mast.PretrainConfig]


@pytest.fixture
def run(tiny: Configure) -> Path:
    return mast.pretrain(tiny(epochs=1)).path


# ------------------------------------------------------------------------------ pretrain


def test_pretrain_by_command_equals_the_function(
    tiny: Configure, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_function = mast.pretrain(tiny(out=str(tmp_path / "a")))
    words = ["pretrain", "--recipe", "mast5_small", "--config", str(by_function.config)]
    assert main([*words, "--out", str(tmp_path / "b")]) == 0
    ours = (tmp_path / "a" / "encoder.safetensors").read_bytes()
    assert (tmp_path / "b" / "encoder.safetensors").read_bytes() == ours


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pretrian", "Did you mean 'pretrain'"),
        ("pretrain --epoch 3", "Did you mean --epochs"),
        ("pretrain --encoder.nam resnet18", "Did you mean --encoder.name"),
        ("pretrain --recipe mast5_smal", "Did you mean 'mast5_small'"),
        ("pretrain --objective.mode papr", "Did you mean 'paper'"),
        ("pretrain --epochs many", "epochs"),
        ("pretrain --recipe", "expected one argument"),
        ("pretrain --epochs 1 photos", "unexpected 'photos'"),
        ("compare", "required: runs"),
        ("evaluate --protocols knn a", "required: encoder. The form is mast evaluate ENCODER ["),
        ("compare a --resamples 0", "resamples 1 or more"),
        ("embed a --data b --out c --threads 0", "threads must be 1 or more, got 0"),
        ("pretrain --threads 0", "threads must be 1 or more, got 0"),
        ("pretrain --nodes 2", "nodes is 2, and nothing says where the others are"),
        ("pretrain --threads 9999", "threads is 9999, and there are"),
        ("pretrain --seed -1", "seed must be 0 or more"),
        ("pretrain --size 4", "size must be 8 or more, got 4"),
        ("pretrain --epochs none", "expected epochs to be a whole number, got 'none'"),
        ("pretrain --optimizer.lr -1e", "expected one argument"),
        ("study growth runs/x --data y --seeds -1 0", "seeds must be"),
        ("study growth --data y runs/x", "runs/x is not a run folder"),
        ("pretrain --out=", "out is empty"),
        ("study growth runs/x --data y --protocols knm", "Did you mean 'knn'"),
        ("evaluate resnet18 --untrained true", "unexpected 'true'"),
        ("pretrain --data no/such/folder --epochs 1", "no/such/folder"),
        ("pretrain --config no-such.yaml", "no configuration file"),
        ("evaluate no/such/run", "no encoder at no/such/run"),
        ("evaluate none.pth", "no encoder at none.pth"),
        ("evaluate resnet18 --weights none.pth", "no checkpoint at none.pth"),
        ("evaluate --protocol knn", "Did you mean --protocols"),
        ("embed", "required"),
        ("export no/such/run", "no encoder"),
        ("show recipies", "Did you mean 'recipes'"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("command", [*VERBS, "show", *(f"show {topic}" for topic in TOPICS)])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    assert f"usage: mast {command}" in capsys.readouterr().out


def parameters(verb: Verb) -> dict[str, inspect.Parameter]:
    module, _, name = verb.function.partition(":")
    return dict(inspect.signature(getattr(import_module(module), name)).parameters)


@pytest.mark.parametrize("name", VERBS)
def test_every_parameter_is_documented(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([name, "--help"])
    options = capsys.readouterr().out.partition("options:")[2]
    for parameter in parameters(VERBS[name]):
        if parameter not in (*VERBS[name].words, "config"):
            assert f"--{parameter}" in options


def test_what_computes_says_on_what(capsys: pytest.CaptureFixture[str]) -> None:
    """One style of option everywhere."""
    for name, verb in VERBS.items():
        main([name, "--help"])
        shown = capsys.readouterr().out
        assert ("--threads" in shown) == ("--device" in shown) == verb.computes, name


def test_help_lists_registries(capsys: pytest.CaptureFixture[str]) -> None:
    for name, registry in (("evaluate", EVALUATORS), ("study", STUDIES), ("analyze", QUESTIONS)):
        main([name, "--help"])
        shown = capsys.readouterr().out
        assert all(f"\n  {key} " in shown for key in registry)


def test_help_has_the_defaults_of_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("--recipe=mast15", "--recipe mast15"):
        main(["pretrain", *words.split(), "--help"])
        shown = " ".join(capsys.readouterr().out.split())
        config = RECIPES["mast15"]()
        assert f"Passes over the data. (default: {config.epochs})" in shown
        assert f"(default: {config.views})" in shown


def test_flags_and_spellings(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag has no value and an opposite; hyphens are as good as underscores."""
    words = ["show", "config", "--compile", "--no_channels_last", "--batch-size=8"]
    main([*words, "--objective.no_standardize", "--operators", "grayscale", "--operators",
          "gaussian_blur", "--optimizer.clip", "none", "--objective.sparsity_weight",
          "-1e-3"])  # fmt: skip
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["compile"], shown["channels_last"], shown["batch_size"]) == (True, False, 8)
    assert shown["objective"]["standardize"] is False
    assert shown["operators"] == ["grayscale", "gaussian_blur"]
    assert shown["optimizer"]["clip"] is None
    assert shown["objective"]["sparsity_weight"] == -1e-3


def test_out_of_memory_is_one_line(
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("mast.runs.memory.memory_of", lambda device: None)
    words = ["pretrain", "--recipe", "mast5_small", "--data", str(photos / "train"), "--size", "32"]
    words += ["--batch_size", "16", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main([*words, "--objective.prediction.hidden", str(10**12)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("error: out of memory (")
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_fault_of_the_program_is_one_line_unless_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong() -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("mast.commands.show.RECIPES", {"broken": wrong})
    assert main(["show", "recipes"]) == 1
    assert "KeyError: 'a bug'. This is a fault of mast" in capsys.readouterr().err
    monkeypatch.setenv("MAST_DEBUG", "1")
    with pytest.raises(KeyError, match="a bug"):
        main(["show", "recipes"])


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "No such file", "/lost"), MemoryError("17 GB"), OSError("odd")]
)
def test_what_is_one_line_is_raised_where_it_is_looked_for(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("mast.commands.show.RECIPES", {"broken": fail})
    assert main(["show", "recipes"]) in (1, 2)
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setenv("MAST_DEBUG", "1")
    with pytest.raises(type(error)):
        main(["show", "recipes"])
    assert main(["show", "nothing"]) == 2  # what a user can mend is one line all the same
    assert capsys.readouterr().err.count("\n") == 1


def test_threads_are_set(run: Path, photos: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        words = ["embed", str(run), "--data", str(photos / "test"), "--threads", "2"]
        assert main([*words, "--out", str(tmp_path / "f.npz")]) == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# ------------------------------------------------------------------------------ configuration


def test_a_file_changes_its_recipe_and_options_change_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("recipe: mast15_small\nepochs: 7\noptimizer: {lr: 0.01}\n")
    main(["show", "config", "--config", str(file), "--epochs", "9"])
    shown = yaml.safe_load(capsys.readouterr().out)
    recipe = RECIPES["mast15_small"]()
    assert (shown["epochs"], shown["optimizer"]["lr"]) == (9, 0.01)
    assert (shown["views"], shown["batch_size"]) == (recipe.views, recipe.batch_size)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recipe: mast5_smal\n", "Did you mean 'mast5_small'"),
        ("recipe: mast5_small\nepoch: 3\n", "Did you mean 'epochs'"),
        ("method: vicrig\n", "Did you mean 'vicreg'"),
        ("just words\n", "holds no fields"),
        ("epochs: [\n", "is not YAML"),
        ("lr: 3\n", "unknown field 'lr'. Did you mean 'optimizer.lr'"),
        ("epochs: many\n", "expected epochs to be a whole number, got 'many'"),
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


def test_an_unknown_field_of_a_run_names_its_file(
    ours: RunFolder, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours.config.write_text(f"{ours.config.read_text()}seeds: 3\n")
    assert main(["uncertain", str(ours.path), "--data", str(photos)]) == 2
    error = capsys.readouterr().err
    assert f"error: {ours.config}: unknown field 'seeds'. Did you mean 'seed'?" in error


def options_of(command: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    assert main([command, "--help"]) == 0
    return options_in(capsys.readouterr().out)


def options_in(text: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z_.]+", text))


@pytest.mark.parametrize("command", ["uncertain", "embed"])
def test_errors_name_the_command_that_has_an_option(
    command: str, ours: RunFolder, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_build", full)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    texts = []
    for data in (photos / "test", "torchvision:CIFAR10@train"):
        assert main([command, str(ours.path), "--data", str(data)]) == 2
        texts.append(capsys.readouterr().err)
    assert "name another folder as XDG_CACHE_HOME; mast pretrain has --data.cache" in texts[0]
    for text in texts:
        owners = {command, *re.findall(r"mast (pretrain|evaluate)", text)}
        assert options_in(text) <= set().union(*(options_of(owner, capsys) for owner in owners))


def test_a_name_that_no_file_can_have_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (f"evaluate {'a' * 300}/b", f"pretrain --config {'a' * 300}", "report ~nobody/x"):
        assert main(words.split()) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_names_are_printed_under_any_locale(
    write_images: Callable[..., Path], tmp_path: Path
) -> None:
    """Python then takes bytes above 127 in a name for what cannot be printed."""
    write_images(tmp_path / "été", 6)
    (tmp_path / "été" / "class0" / "naïve.cr2").write_bytes(b"")
    locale = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    words = ["show", "views", "--data", "été", "--size", "8", "--images", "2", "--out", "vü.png"]
    process = subprocess.run(
        [sys.executable, "-m", "mast.cli", *words],
        cwd=tmp_path, env={**os.environ, **locale}, capture_output=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert b"Traceback" not in process.stderr
    assert rb"na\udcc3\udcafve.cr2" in process.stderr
    assert process.stdout == b"v\\udcc3\\udcbc.png\n"
    assert (tmp_path / "vü.png").is_file()


def test_a_run_stays_what_it_was(tiny: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a mode decides is written down; what an older version did not write has its default."""
    config = tiny(epochs=1)
    folder = mast.pretrain(config)
    written = read(folder.config)
    resolved = config.objective.resolved()
    name = next(iter(MODES))
    changed = {key: replace(mode, masked_weight=99.0) for key, mode in MODES.items()}
    monkeypatch.setattr("mast.methods.mast_config.MODES", changed)
    assert name in changed
    assert read(folder.config).objective.resolved() == resolved
    values = yaml.safe_load(folder.config.read_text())
    del values["channels_last"], values["optimizer"]["momentum"]
    monkeypatch.setitem(
        RECIPES, values["recipe"], lambda: replace(config, channels_last=False, epochs=77)
    )
    folder.config.write_text(yaml.safe_dump(values))
    assert read(folder.config) == written


def test_another_mode_starts_from_its_own_switches(tmp_path: Path) -> None:
    """What a run wrote down of its mode does not stay behind when the mode is changed."""
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(record(configure("mast5_small", epochs=3))))
    words = ["--config", str(file), "--objective.mode", "paper", "--objective.kl_weight", "5"]
    config = arguments_of("pretrain", words)["config"]
    assert config.objective.resolved() == replace(MODES["paper"], kl_weight=5.0)
    assert config.epochs == 3
    same = arguments_of("pretrain", ["--config", str(file), "--objective.mode", "exempt"])
    assert same["config"] == read(file)


def test_the_objective_decides_the_method() -> None:
    config = configure("mast5_small")
    other = configure("vicreg5_small")
    assert (config.method, other.method) == ("mast", "vicreg")
    assert replace(config, objective=other.objective).method == "vicreg"
    with pytest.raises(AttributeError):
        config.method = "vicreg"  # type: ignore[misc]


# ------------------------------------------------------------------------------ recipes


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_survive_yaml(name: str, tmp_path: Path) -> None:
    config = RECIPES[name]()
    config.check()
    assert config.recipe == name
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({**plain(config), "method": config.method}))
    assert read(file) == config
    file.write_text(yaml.safe_dump(record(config)))
    assert record(read(file)) == record(config)


def test_imagenet_recipes_are_the_papers() -> None:
    for name in FULL:
        config = RECIPES[name]()
        assert config.optimizer.lr * config.batch_size / 256 == 1.6
        assert (config.epochs, config.batch_size, config.size) == (1000, 2048, 224)
        assert (config.optimizer.name, config.optimizer.weight_decay) == ("lars", 1e-6)
        assert config.encoder.name == "resnet50"
        assert config.objective.projector.hidden == 8192


@pytest.mark.parametrize("name", ["mast5", "mast5_small"])
def test_paper_mode_of_a_recipe_is_the_papers(name: str) -> None:
    objective = configure(name, objective={"mode": "paper"}).objective
    assert isinstance(objective, MastConfig)
    assert objective.resolved() == MODES["paper"]


# ----------------------------------------------------------------------- evaluate, embed


def test_evaluate_by_command(run: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", str(run), "--data", str(photos), "--protocols", "knn", "linear"]
    assert main(words) == 0
    assert "class" in capsys.readouterr().out
    files = sorted((run / "evaluations").glob("*.json"))
    assert [file.name.split("-")[0] for file in files] == ["knn", "linear"]
    stored = json.loads(files[0].read_text())
    assert stored["sizes"] == {"train": 48, "val": 24, "test": 24}
    # Classes differ by their colour channel, which even this encoder sees.
    assert stored["targets"]["class"]["values"]["top1"] > 60.0


def test_evaluate_a_set_by_its_usual_name(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[EvaluationData] = []

    def keep(module: nn.Module, data: EvaluationData, *rest: Any) -> list[Result]:
        given.append(data)
        return evaluate_encoder(module, data, *rest)

    monkeypatch.setattr("mast.commands.evaluate.evaluate_encoder", keep)
    write_pets(default_cache() / "downloads")
    (result,) = mast.evaluate(run, "torchvision:OxfordIIITPet", ("knn",))
    assert (given[0].metric, given[0].val) == ("mean_per_class", None)
    assert result.sizes == {"train": 12, "test": 6}
    assert result.targets["class"].values["top1"] == 100.0


def test_evaluate_the_ensemble_of_masked_embeddings(run: Path, photos: Path) -> None:
    module, size, *_ = load(run, "ensemble")
    images_BCHW = torch.rand(2, 3, size, size)
    assert module(images_BCHW).shape == (2, 5 * 24)
    embedding, *_ = load(run, "embedding")
    assert embedding(images_BCHW).shape == (2, 24)


def test_evaluate_names_missing_parts(run: Path, photos: Path) -> None:
    with pytest.raises(UserError, match="no test and no train folder"):
        mast.evaluate(run, str(photos / "train"))


def test_evaluate_an_encoder_by_name(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        (result,) = mast.evaluate("timm:resnet18", str(photos), ("knn",), size=32, seed=seed)
        assert result.settings["extraction"]["size"] == 32
    first, again, other = (
        load("timm:resnet18", size=32, seed=seed).module.model.conv1.weight for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    for seed in (0, 1):
        folder = tmp_path / "runs" / f"timm-resnet18-random-{seed}" / "evaluations"
        assert len(list(folder.glob("knn-*.json"))) == 1
    with pytest.raises(UserError, match="no run folder resnet81 here, and unknown encoder"):
        mast.evaluate("resnet81", str(photos))
    with pytest.raises(UserError, match="has no ensemble: it was not trained"):
        load("resnet18", "ensemble")
    with pytest.raises(UserError, match="no encoder at"):
        mast.evaluate(tmp_path / "runs" / "nothing", str(photos))


def test_evaluate_a_checkpoint_of_another_project(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = torchvision.models.resnet18()
    file = tmp_path / "theirs" / "swav.pth.tar"
    file.parent.mkdir()
    torch.save({f"module.{key}": value for key, value in model.state_dict().items()}, file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    for words in ([str(file)], ["resnet18", "--weights", str(file)]):
        command = ["evaluate", *words, "--data", str(photos), "--protocols", "knn", "--size", "32"]
        assert main(command) == 0
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    folders = sorted((tmp_path / "runs").iterdir())
    assert [path.name[:-8] for path in folders] == ["resnet18-swav-", "swav-"]
    for folder in folders:
        assert [path.name[:4] for path in (folder / "evaluations").glob("*.json")] == ["knn-"]
    loaded = load(file)
    assert (loaded.size, loaded.folder) == (224, Path("runs") / f"swav-{digest[:8]}")
    assert loaded.description["encoder"]["name"] == "resnet18"
    assert loaded.description["weights"] == {
        "file": "swav.pth.tar",
        "sha256": digest,
        "layout": "timm or torchvision",
        "left_out": 2,
    }
    npz = mast.embed("resnet18", str(photos / "test"), size=32, weights=str(file))
    with np.load(npz) as arrays:
        assert arrays["features"].shape == (24, 512)
    with pytest.raises(UserError, match="has no ensemble: it is an encoder alone"):
        load(file, "ensemble")
    with pytest.raises(UserError, match="not those of 'resnet34'"):
        mast.evaluate("resnet34", str(photos), weights=file)


def test_embed_writes_both_kinds(run: Path, photos: Path, tmp_path: Path) -> None:
    encoder = mast.load_encoder(run)
    npz = mast.embed(run, str(photos / "test"), tmp_path / "features.npz")
    parquet = mast.embed(run, str(photos / "test"), tmp_path / "features.parquet")
    with np.load(npz) as arrays:
        features_ND = arrays["features"]
        assert features_ND.shape == (24, encoder.dim)
        assert features_ND.dtype == np.float32
        names = arrays["identifiers"].tolist()
        labels = arrays["target_class"].tolist()
    table = pyarrow.parquet.read_table(parquet)
    assert table["identifier"].to_pylist() == names
    assert table["target_class"].to_pylist() == labels
    assert np.array_equal(np.array(table["features"].to_pylist(), np.float32), features_ND)
    with pytest.raises(UserError, match=r"\.npz or \.parquet"):
        mast.embed(run, str(photos / "test"), tmp_path / "features.csv")


def test_embed_writes_what_an_image_shows(run: Path, tmp_path: Path) -> None:
    data = f"coco:{write_coco(tmp_path / 'coco')}@train2017"
    with np.load(mast.embed(run, data, tmp_path / "features.npz")) as arrays:
        assert arrays["multilabel_objects"].tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 0]]
    table = pyarrow.parquet.read_table(mast.embed(run, data, tmp_path / "features.parquet"))
    assert table["multilabel_objects"].to_pylist() == [[1, 1, 0], [0, 0, 0], [1, 0, 0]]


def test_embed_what_is_ignored_and_matched(run: Path, photos: Path, tmp_path: Path) -> None:
    data, first, second = str(photos / "test"), "horizontal_flip", "color_jitter"
    words = ["embed", str(run), "--data", data, "--ignore", first, "--match", second]
    for name in ("chosen.npz", "chosen.parquet"):
        assert main([*words, "--out", str(tmp_path / name)]) == 0
    whole = mast.embed(run, data, tmp_path / "whole.npz", representation="embedding")
    with torch.no_grad():
        space = mast.load_embedding(run).space(first, second)
    with np.load(whole) as before, np.load(tmp_path / "chosen.npz") as after:
        assert "ignored" not in before
        assert (after["ignored"].tolist(), after["matched"].tolist()) == ([first], [second])
        seen_ND = space.seen(torch.from_numpy(before["features"]))
        np.testing.assert_allclose(after["features"], seen_ND.numpy())
    metadata = pyarrow.parquet.read_table(tmp_path / "chosen.parquet").schema.metadata
    assert metadata == {
        b"ignored": json.dumps([first]).encode(), b"matched": json.dumps([second]).encode()
    }  # fmt: skip


def test_embed_what_heads_read(
    tiny: Callable[..., mast.PretrainConfig], photos: Path, tmp_path: Path
) -> None:
    run = mast.pretrain(tiny(recipe="vicreg5_augself_small", epochs=1)).path
    data = str(photos / "test")
    for options, name in (({}, "whole.npz"), ({"match": "color"}, "read.npz")):
        mast.embed(run, data, tmp_path / name, **options)
    with pytest.raises(UserError, match="give match, too"):
        mast.embed(run, data, tmp_path / "by.npz", match_by="heads")
    with np.load(tmp_path / "whole.npz") as whole, np.load(tmp_path / "read.npz") as read:
        assert read["matched"].tolist() == ["color_jitter", "grayscale"]
        readings = torch.cat(list(mast.load_method(run).readings().values()))
        np.testing.assert_allclose(
            read["features"], whole["features"] @ readings.numpy().T, rtol=1e-3, atol=1e-4
        )


def test_embed_refuses_a_choice_that_an_encoder_does_not_have(
    run: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for encoder, options, message in (
        (run, "--ignore rotat", "unknown operator 'rotat'"),
        (run, "--match color_jitter --representation ensemble", "leave out representation"),
        ("resnet18", "--ignore rotate", "resnet18 has no embedding"),
        (run / "encoder.safetensors", "--ignore rotate", "is not a run folder"),
    ):
        words = ["embed", str(encoder), "--data", str(photos / "test"), *options.split()]
        assert main(words) == 2
        assert message in capsys.readouterr().err


# -------------------------------------------------------------------------------- export


def resnet18(tmp_path: Path, size: int) -> Encoder:
    encoder = Encoder(EncoderConfig("resnet18"), size).eval()
    with torch.no_grad():  # statistics other than those of the start
        for module in encoder.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0.0, 0.1)
                module.weight.uniform_(0.5, 1.5)
    save_encoder(encoder, tmp_path / "encoder.safetensors")
    return encoder


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_exported_state_dicts_load_in_their_library(tmp_path: Path, library: str) -> None:
    encoder = resnet18(tmp_path, size=96)
    file = mast.export(tmp_path / "encoder.safetensors", library)
    state = load_file(file)
    images_BCHW = torch.rand(2, 3, 96, 96)
    normalised = (images_BCHW - encoder.mean) / encoder.std
    if library == "timm":
        model = timm.create_model("resnet18", num_classes=0).eval()
    else:
        model = torchvision.models.resnet18().eval()
        model.fc = nn.Identity()
    model.load_state_dict(state)
    with torch.no_grad():
        assert torch.allclose(model(normalised), encoder(images_BCHW), atol=1e-5)


def test_export_of_a_run_with_a_small_stem(run: Path) -> None:
    file = mast.export(run, "timm")
    assert file == run / "encoder-timm.safetensors"
    with pytest.raises(UserError, match="torchvision has no model with the weights"):
        mast.export(run, "torchvision")
    with pytest.raises(UserError, match="Did you mean 'timm'"):
        mast.export(run, "timn")


# ---------------------------------------------------------------------------------- show


def test_show(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "operators"]) == 0
    assert "motion_blur" in capsys.readouterr().out
    assert main(["show", "recipes"]) == 0
    assert "vicreg5_staged" in capsys.readouterr().out
    assert main(["show", "config", "--recipe", "mast15_small", "--seed", "7"]) == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text)["objective"]["masked_weight"] > 0
    shown = tmp_path / "shown.yaml"
    shown.write_text(text)
    expected = configure("mast15_small", seed=7)
    given, wanted = read(shown).objective, expected.objective
    assert given.resolved() == wanted.resolved()
    assert replace(read(shown), objective=wanted) == expected
    assert given.projector == wanted.projector
    out = tmp_path / "views.png"
    words = ["show", "views", "--data", str(photos / "train"), "--recipe", "mast15_small"]
    assert main([*words, "--out", str(out), "--images", "2"]) == 0
    from PIL import Image

    with Image.open(out) as picture:
        assert min(picture.size) > 300


# ---------------------------------------------------------------------------------- demo


def test_demo_measures_every_task_of_every_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mast.commands.together.cores", lambda: 1)  # two have a test of their own
    result = mast.demo(tmp_path / "demo", epochs=1, images=256)
    tasks = ["shape", "color", "orientation", "position", "texture", "sharpness"]
    encoders = ["chance", "untrained", "VICReg", "VICReg + prediction", "MAST"]
    spaces = [*encoders, "MAST, its heads", "MAST, ignoring colour", "MAST, matching colour"]
    spaces.insert(4, "VICReg + prediction, its heads")
    for scores, columns in ((result.accuracy, encoders), (result.precision, spaces)):
        assert list(scores) == tasks
        for row in scores.values():
            assert list(row) == columns
            assert all(0.0 < value <= 100.0 for value in row.values())
    assert result.accuracy["color"]["chance"] == pytest.approx(100 / 8)
    assert [table.row_count for table in result.tables()] == [len(encoders), len(spaces)]
    narrow = Console(width=80, file=io.StringIO())
    narrow.print(*result.tables())
    shown = narrow.file.getvalue()
    assert all(shown.count(task) == 2 for task in tasks)  # none is cut short
    assert result.run.encoder.is_file()
    assert list((result.run.path / "evaluations").glob("linear-*.json"))
    page = result.page.read_text()
    for name in ("mast", "vicreg", "augself", "untrained"):
        assert name in page
