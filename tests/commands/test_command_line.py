"""Words to calls: what every command understands, refuses and lists in its help."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mast.cli import main
from mast.cli.verbs import TOPICS, VERBS, named
from mast.cli.words import arguments_of, options_of
from mast.recipes import RECIPES


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pretrian", "Did you mean 'pretrain'"),
        ("nothing", "unknown command 'nothing'. Choose from"),
        ("embed photos --encodr resnet18", "Did you mean --encoder?"),
        ("pretrain --lr 1", "without dashes, such as optimizer.lr=0.1"),
        ("pretrain photos size=8 --size 8", "size: expected once"),
        ("pretrain toys --recipe mast_c5_smal", "Did you mean 'mast_c5_small'"),
        ("pretrain --epochs 1 photos more", "expected one folder of images, then key=value"),
        ("embed photos", "data: no folder photos, and no set such as"),
        ("embed b --encoder a --out c --threads 0", "threads: expected 1 to"),
        ("pretrain epochs=none", "epochs: expected a whole number, got 'none'"),
        ("pretrain toys --out=", "out: expected a folder"),
        ("evaluate resnet18 --untrained true", "expected protocol.setting=value, such as"),
        ("pretrain --config no-such.yaml", "cannot read no-such.yaml"),
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


NAMES = [*VERBS, *(f"show {topic}" for topic in TOPICS)]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_of_every_parameter(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: mast {name}" in shown
    verb = named(name)
    options = {option: text for option, (_, _, text) in options_of(verb).items()}
    assert all(options.values())
    parameters = {*inspect.signature(verb.load()).parameters}
    assert parameters - {"config", "settings", "changes"} <= {*options}
    assert all(f"--{option}" in shown for option in options.keys() - {*verb.words, "changes"})
    assert len(options.keys() - {*verb.words, "changes"}) <= 20


def test_help_and_mistakes_in_words_come_without_pytorch() -> None:
    """Neither imports PyTorch or NumPy, nor says a traceback."""
    words = [["--help"], ["show"], ["evalaute"], *([*name.split(), "--help"] for name in NAMES)]
    words += [
        ["embed"],
        ["embed", "photos", "--sed", "1"],
        ["embed", "photos", "--seed", "x"],
        ["neighbours", "photos", "--query", "0", "--seed", "-1"],
        ["embed", "photos"],
    ]
    codes = [0, 0, 2, *[0] * len(NAMES), *[2] * 5]
    code = (
        "import sys; sys.modules.update(torch=None, numpy=None); from mast.cli import main; "
        f"codes = [main(words) for words in {words}]; assert codes == {codes}, codes"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.lower().count("usage: ") == 2 + len(NAMES)
    assert ended.stderr.count("\n") == 6


def test_fields_are_shown_with_their_texts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "config", "photos", "--recipe", "mast15", "optimizer.lr=0.5"]) == 0
    shown = capsys.readouterr().out
    assert "# Passes over the data.\nepochs: " in shown
    assert "\n  lr: 0.5\n" in shown
    assert yaml.safe_load(shown)["views"] == RECIPES["mast15"]().views


def test_settings_are_words(tmp_path: Path) -> None:
    words = ["run", "--protocols", "knn", "finetune", "finetune.changes.epochs=3", "--seed", "2"]
    read = arguments_of("evaluate", [*words, "knn.temperatures=0.1,1", "--train", "a"])
    assert read["settings"] == {
        "finetune": {"changes": {"epochs": "3"}}, "knn": {"temperatures": "0.1,1"}
    }  # fmt: skip
    assert (read["protocols"], read["data"].train) == (["knn", "finetune"], "a")


def test_flags_and_spellings(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag has no value and an opposite; hyphens are as good as underscores."""
    words = ["show", "config", "--recipe", "mast5", "compile=true", "cuda_graphs=false"]
    words += ["--batch-size=8", "objective.uncertainty=false", "objective.sparsity_weight=-1e-3"]
    main([*words, "operators=grayscale,gaussian_blur", "optimizer.clip=none", "data.range=-1e3,1e3",
          "--no_download"])  # fmt: skip
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["compile"], shown["cuda_graphs"], shown["batch_size"]) == (True, False, 8)
    assert shown["objective"]["uncertainty"] is False
    assert shown["operators"] == ["grayscale", "gaussian_blur"]
    assert shown["optimizer"]["clip"] is None
    assert shown["data"]["range"] == [-1000, 1000]
    assert shown["objective"]["sparsity_weight"] == -1e-3


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyError("a bug"), 1, "KeyError: 'a bug'. This is a bug in mast"),
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

    monkeypatch.setattr("mast.recipes.RECIPES", {"broken": fail})
    assert main(["show", "recipes"]) == code
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    monkeypatch.setenv("MAST_DEBUG", "1")
    with pytest.raises(type(error)):
        main(["show", "recipes"])
