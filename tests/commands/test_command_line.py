"""Words to calls: what every command understands, refuses and lists in its help."""

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

import mast
from mast.cli import main
from mast.cli.options import arguments_of
from mast.cli.verbs import TOPICS, VERBS
from mast.config import record
from mast.evaluation.protocols import EVALUATORS
from mast.recipes import RECIPES
from mast.studies import QUESTIONS, STUDIES

Configure = Callable[..., mast.PretrainConfig]


def test_a_file_and_options_make_the_same_configuration(tiny: Configure, tmp_path: Path) -> None:
    file, config = tmp_path / "config.yaml", tiny(epochs=1)
    file.write_text(mast.show_config(config))
    words = ["--recipe", "mast_c5_small", "--config", str(file), "--epochs", "3"]
    made = arguments_of("pretrain", words)["config"]
    assert record(made) == record(replace(config, epochs=3))


@pytest.mark.parametrize("verb", ["pretrain", "show config"])
def test_a_current_folder_that_is_gone_is_one_line(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(verb.split()) == 2
    assert capsys.readouterr().err == (
        "error: the current folder is gone: change to one that is there\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pretrian", "Did you mean 'pretrain'"),
        ("nothing", "unknown command 'nothing'. Choose from"),
        ("pretrain --encoder.nam resnet18", "Did you mean --encoder.name"),
        ("pretrain --data.size 64", "Did you mean --size"),
        ("pretrain --lr 1", "Did you mean --optimizer.lr"),
        ("pretrain --recipe mast_c5_smal", "Did you mean 'mast_c5_small'"),
        ("pretrain --objective.compare distanc", "Did you mean 'distance'"),
        ("pretrain --epochs 1 photos more", "unexpected 'more'"),
        ("compare", "required: runs"),
        ("evaluate --protocols knn a", "required: encoder. The form is mast evaluate ENCODER ["),
        ("compare a --resamples 0", "resamples 1 to 100,000"),
        ("embed b --encoder a --out c --threads 0", "threads must be 1 or more, got 0"),
        ("pretrain --nodes 2", "nodes is 2, and nothing says where the others are"),
        ("pretrain --epochs none", "expected epochs to be a whole number, got 'none'"),
        ("pretrain --optimizer.lr -1e", "expected optimizer.lr to be a number, got"),
        ("study epochs runs/x --data y --seeds -1 0", "seeds must be"),
        ("study epochs --data y runs/x", "runs/x is not a run folder"),
        ("pretrain --out=", "out is empty"),
        ("evaluate resnet18 --untrained true", "unexpected 'true'"),
        ("pretrain --config no-such.yaml", "no configuration file"),
        ("evaluate resnet18 --weights none.pth", "no checkpoint at none.pth"),
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


@pytest.mark.parametrize("name", [*VERBS, "show", *(f"show {topic}" for topic in TOPICS)])
def test_every_command_has_help_of_every_parameter(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"usage: mast {name}" in shown
    if verb := VERBS.get(name):
        parameters = inspect.signature(verb.load()).parameters
        for parameter in parameters.keys() - {*verb.words, "config"}:
            assert re.search(rf"\n  --{parameter}\b.*\n? +\S", shown), parameter
        assert ("--threads" in shown) == ("--device" in shown) == verb.computes


def test_help_lists_registries(capsys: pytest.CaptureFixture[str]) -> None:
    for name, registry in (
        ("--help", VERBS), ("evaluate", EVALUATORS), ("study", STUDIES), ("analyze", QUESTIONS),
    ):  # fmt: skip
        main([name, "--help"])
        shown = capsys.readouterr().out
        assert all(f"\n  {key} " in shown for key in registry)


def test_help_has_the_defaults_of_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    main(["pretrain", "--recipe", "mast15", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    config = RECIPES["mast15"]()
    assert f"Passes over the data. (default: {config.epochs})" in shown
    assert f"(default: {config.views})" in shown


def test_help_shows_what_is_common(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*words: str) -> set[str]:
        main(["pretrain", *words])
        return {*re.findall(r"^  (-.*?)[ ,\n]", capsys.readouterr().out, re.MULTILINE)}

    few, everything = shown("--help"), shown("--help", "all")
    assert "--epochs" in few < everything
    assert len(few) <= 40
    assert {"--optimizer.lr", "--optimizer.momentum"} & few == {"--optimizer.lr"}


def test_flags_and_spellings(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag has no value and an opposite; hyphens are as good as underscores."""
    words = ["show", "config", "--recipe", "mast5", "--compile", "--no_channels_last"]
    words += ["--batch-size=8", "--objective.no_uncertainty", "--objective.sparsity_weight"]
    main([*words, "-1e-3", "--operators", '["grayscale", "gaussian_blur"]',
          "--optimizer.clip", "none", "--data.range", "-1e3", "1e3"])  # fmt: skip
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["compile"], shown["channels_last"], shown["batch_size"]) == (True, False, 8)
    assert shown["objective"]["uncertainty"] is False
    assert shown["operators"] == ["grayscale", "gaussian_blur"]
    assert shown["optimizer"]["clip"] is None
    assert shown["data"]["range"] == [-1000, 1000]
    assert shown["objective"]["sparsity_weight"] == -1e-3


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyError("a bug"), 1, "KeyError: 'a bug'. This is a fault of mast"),
        (FileNotFoundError(2, "No such file", "/lost"), 2, "/lost: No such file"),
        (MemoryError("17 GB"), 2, "out of memory (17 GB)"),
    ],
)
def test_a_fault_is_one_line_unless_it_is_looked_for(
    error: Exception, code: int, message: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def fail() -> None:
        raise error

    monkeypatch.setattr("mast.commands.show.RECIPES", {"broken": fail})
    assert main(["show", "recipes"]) == code
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    monkeypatch.setenv("MAST_DEBUG", "1")
    with pytest.raises(type(error)):
        main(["show", "recipes"])


def test_threads_are_set(run: Path, photos: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        words = ["embed", str(photos / "test"), "--encoder", str(run), "--threads", "2"]
        assert main([*words, "--out", str(tmp_path / "f.npz")]) == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_name_that_no_file_can_have_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (f"evaluate {'a' * 300}/b", f"pretrain --config {'a' * 300}", "report ~nobody/x"):
        assert main(words.split()) == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_names_are_printed_under_any_locale(
    write_images: Callable[..., Path], tmp_path: Path
) -> None:
    """Python then takes bytes above 127 in a name for what cannot be printed."""
    write_images(tmp_path / "été", 6)
    (tmp_path / "été" / "class0" / "naïve.cr2").write_bytes(b"")
    locale = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    words = ["show", "views", "été", "--size", "8", "--images", "2", "--out", "vü.png"]
    process = subprocess.run(
        [sys.executable, "-m", "mast.cli", *words],
        cwd=tmp_path, env={**os.environ, **locale}, capture_output=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert b"Traceback" not in process.stderr
    assert rb"na\udcc3\udcafve.cr2" in process.stderr
    assert process.stdout == b"v\\udcc3\\udcbc.png\n"
    assert (tmp_path / "vü.png").is_file()
