"""What a command says at its end: where its result is, and which command may come next."""

import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mast
from mast.cli import main
from mast.cli.options import arguments_of
from mast.cli.verbs import VERBS
from mast.commands.plan import Plan
from mast.core.files import as_word, quoted
from mast.core.run import RunFolder


@pytest.fixture
def run(ours: RunFolder, tmp_path: Path) -> Path:
    """A finished run whose name a shell would take apart."""
    return Path(shutil.move(ours.path, tmp_path / "Ann's run"))


def last_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """What a command printed in all, and the words of the command that may come next."""
    assert main(words) == 0
    printed = capsys.readouterr()
    *_, line = printed.err.splitlines()
    assert line.startswith("next: ")
    return printed.out + printed.err, shlex.split(line.removeprefix("next: "))


ODD = ("a b", "it's", '"q"', "-x", "--data", "-5", "[a]", "null", "~", "~root", "#x", "é", "$HOME",
       "`ls`", "*", "a;b", "{a: 1}", "x=y")  # fmt: skip


MANY = SimpleNamespace(counts={"class0": 2})
KNOWN = SimpleNamespace(subspaces=SimpleNamespace(properties=("color", "focus")))


@pytest.mark.parametrize("name", ODD)
def test_an_odd_name_is_read_as_it_was_meant(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    RunFolder(name).path.mkdir()
    RunFolder(name).config.write_text(mast.show_config(mast.configure("mast5_small")))
    file = Path(name, "encoder.safetensors")
    file.touch()
    here = str(Path(name))
    cases: list[tuple[str, dict[str, Any], Any, str, str]] = [
        ("pretrain", {}, RunFolder(name), "encoder", name),
        ("evaluate", {"encoder": here}, None, "run", name),
        ("evaluate", {"encoder": str(file)}, None, "run", name),
        ("analyze", {"run": here}, None, "run", name),
        ("fit", {}, SimpleNamespace(path=file), "classifier", str(file)),
        ("fit", {"encoder": "own.npz"}, SimpleNamespace(path=file), "features", "FEATURES"),
        ("adapt", {"data": here}, SimpleNamespace(path=Path(name), adapted=KNOWN), "data", name),
        ("predict", {"classifier": here, "data": here}, MANY, "encoder", name),
        ("predict", {"classifier": here, "data": here}, MANY, "data", name),
        ("shard", {}, SimpleNamespace(path=Path(name)), "data", name),
    ]
    for verb, arguments, result, what, expected in cases:
        following = VERBS[verb].following
        assert following is not None
        words = following(arguments, result)
        assert words is not None
        program, command, *rest = shlex.split(shlex.join(words))
        assert program == "mast"
        read = arguments_of(command, rest)[what]
        assert Path(str(read).removeprefix("shards:")) == Path(expected), verb
    assert shlex.split(quoted(name)) == [as_word(name)]
    config = mast.configure("mast5_small", data=name)
    (command,) = Plan(name, (SimpleNamespace(config=config, measured=True),), ()).commands
    assert Path(arguments_of("pretrain", shlex.split(command)[2:])["config"].data.spec) == Path(
        name
    )


def test_what_is_in_a_folder_with_another_programs_configuration_is_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text("model: resnet18\n")
    Path("weights.pth").touch()
    following = VERBS["evaluate"].following
    assert following is not None
    assert following({"encoder": "weights.pth"}, None) is None
    assert following({"encoder": "resnet18"}, None) is None  # a name
    Path("config.yaml").write_text(mast.show_config(mast.configure("mast5_small")))
    assert following({"encoder": "resnet18"}, None) is None
    assert following({"encoder": "weights.pth"}, None) == ("mast", "report", ".")
    assert following({"encoder": "weights.pth", "ignore": "color"}, None) is None


def test_a_page_that_is_not_ours_is_not_offered(
    ours: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    following = VERBS["predict"].following
    assert following is not None
    arguments = {"classifier": str(ours.path), "data": "photos"}
    assert list(following(arguments, MANY) or ())[-2:] == ["--out", "outliers.html"]
    Path("outliers.html").write_text("<html>")
    assert list(following(arguments, MANY) or ())[-2:] == ["--data", "photos"]
    assert following(arguments, SimpleNamespace(counts={"class0": 1})) is None


def test_a_name_that_no_terminal_shows_is_not_offered(
    ours: RunFolder, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("two\nlines.npz", "\x1b[2J.npz"):
        words = ["--data", str(photos / "test"), "--out", str(tmp_path / name)]
        assert main(["embed", str(ours.path), *words]) == 0
        assert (tmp_path / name).is_file()
        assert "next: " not in capsys.readouterr().err


def test_evaluate_and_analyze(run: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", str(run), "--data", str(photos), "--protocols", "knn"]
    printed, following = last_line(words, capsys)
    (file,) = (run / "evaluations").glob("knn-*.json")
    assert f"done: {file}" in printed
    assert following == ["mast", "report", str(run)]
    _, following = last_line([*words, "--untrained"], capsys)
    assert following == ["mast", "compare", str(run)]
    printed, following = last_line(["analyze", str(run), "--analyses", "curves"], capsys)
    assert f"{run / 'analysis' / 'curves.npz'}\n" in printed
    assert following == ["mast", "report", str(run)]
    assert main(following[1:]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    file = run.parent / "some features.npz"
    words = ["embed", str(run), "--data", str(photos / "test"), "--out", str(file)]
    printed, following = last_line(words, capsys)
    assert printed.startswith(f"{file}\n")
    assert following[-1] == str(file)
    assert main(["report", str(photos)]) == 2
    assert "next: " not in capsys.readouterr().err


def test_predict(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    printed, following = last_line(["fit", str(run), "--data", str(photos)], capsys)
    (classifier,) = run.glob("classifier-*.safetensors")
    assert f"classifier: {classifier}\n" in printed
    assert following == ["mast", "predict", str(classifier), "--data", "FOLDER"]
    images = str(photos / "test" / "class0")
    for source in (classifier, run):
        printed, following = last_line(["predict", str(source), "--data", images], capsys)
        (table,) = tmp_path.glob("predictions-test-class0-by-*.csv")
        assert table.stem.endswith(f"-{classifier.stem.replace('classifier', run.name, 1)}")
        assert f"table: {table}\n" in printed
        assert following == [
            "mast", "outliers", str(run), "--data", images, "--out", "outliers.html",
        ]  # fmt: skip
    assert main(following[1:]) == 0
