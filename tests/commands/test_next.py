"""What a command says at its end: where its result is, and which command may come next."""

import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mast
from mast.cli import main
from mast.cli.verbs import VERBS
from mast.cli.words import arguments_of
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


ODD = ("a b", "it's", "--data", "-5", "[a]", "null", "~", "$HOME", "{a: 1}")


MANY = SimpleNamespace(counts={"class0": 2})
KNOWN = SimpleNamespace(subspaces=SimpleNamespace(properties=("color", "focus")))


@pytest.mark.parametrize("name", ODD)
def test_an_odd_name_is_read_as_it_was_meant(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    RunFolder(name).path.mkdir()
    RunFolder(name).config.write_text(mast.show_config(mast.configure("mast_c5_small")))
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
        words = following(arguments, result)
        program, command, *rest = shlex.split(shlex.join(words))
        assert program == "mast"
        read = arguments_of(command, rest)[what]
        assert Path(str(read).removeprefix("shards:")) == Path(expected), verb
    assert shlex.split(quoted(name)) == [as_word(name)]


def test_what_is_in_a_folder_with_another_programs_configuration_is_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text("model: resnet18\n")
    Path("weights.pth").touch()
    following = VERBS["evaluate"].following
    assert following({"encoder": "weights.pth"}, None) is None
    Path("config.yaml").write_text(mast.show_config(mast.configure("mast_c5_small")))
    assert following({"encoder": "resnet18"}, None) is None
    assert following({"encoder": "weights.pth"}, None) == ("mast", "report", ".")
    assert following({"encoder": "weights.pth", "ignore": "color"}, None) is None


def test_a_name_that_no_terminal_shows_is_not_offered(
    ours: RunFolder, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(photos / "test"), "--out", str(tmp_path / "two\nlines.npz")]
    assert main(["embed", *words, "--encoder", str(ours.path)]) == 0
    assert "next: " not in capsys.readouterr().err


def test_evaluate_and_analyze(run: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", str(run), "--data", str(photos), "--protocols", "knn"]
    printed, following = last_line(words, capsys)
    (file,) = (run / "evaluations").glob("knn-*.json")
    assert f"done: {file}" in printed
    assert following == ["mast", "report", str(run)]
    assert f"--data {photos} --untrained" in str(mast.compare(run).verdict)
    _, following = last_line([*words, "--untrained"], capsys)
    assert following == ["mast", "compare", str(run)]
    printed, following = last_line(["analyze", str(run), "--analyses", "curves"], capsys)
    assert f"{run / 'analysis' / 'curves.npz'}\n" in printed
    assert main(following[1:]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
