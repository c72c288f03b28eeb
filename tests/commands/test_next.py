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
        ("evaluate", {"encoder": str(file)}, None, "runs", str(file)),
        ("analyze", {"run": here}, None, "run", name),
        ("fit", {}, SimpleNamespace(path=file), "classifier", str(file)),
        ("adapt", {"data": here}, SimpleNamespace(path=Path(name)), "data", name),
        ("shard", {}, SimpleNamespace(path=Path(name)), "data", name),
    ]
    for verb, arguments, result, what, expected in cases:
        command, *rest = shlex.split(VERBS[verb].next(arguments, result))
        read = arguments_of(command, rest)[what]
        (read,) = read if isinstance(read, tuple) else (read,)
        assert Path(str(read).removeprefix("shards:")) == Path(expected), verb
    assert shlex.split(quoted(name)) == [as_word(name)]


def test_a_name_that_no_terminal_shows_is_not_offered(
    ours: RunFolder, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(photos), "--out", str(tmp_path / "two\nlines.safetensors")]
    assert main(["fit", *words, "--encoder", str(ours.path)]) == 0
    assert "next: " not in capsys.readouterr().err


def test_evaluate_and_analyze(run: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", str(run), "--data", str(photos), "--protocols", "knn"]
    printed, following = last_line(words, capsys)
    (file,) = (run / "evaluations").glob("knn-*.json")
    assert f"done: {file}" in printed
    assert following == ["mast", "compare", str(run)]
    assert f"--data {photos} --untrained" in str(mast.compare(run).verdict)
    printed, following = last_line(["analyze", str(run), "--analyses", "curves"], capsys)
    assert f"{run / 'analysis' / 'curves.npz'}\n" in printed
    assert main(following[1:]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
