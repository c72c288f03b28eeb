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


def test_what_evaluate_and_analyze_offer_is_run(
    ours: RunFolder, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a run whose name a shell would take apart."""
    run = Path(shutil.move(ours.path, tmp_path / "Ann's run"))
    for words, following in (
        (["evaluate", str(run), "--data", str(photos), "--protocols", "knn"], "compare"),
        (["analyze", str(run), "--analyses", "curves"], "report"),
    ):
        assert main(words) == 0
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.startswith("next: ")
        _, *offered = shlex.split(line.removeprefix("next: "))
        assert offered[:2] == [following, str(run)]
        assert main(offered) == 0
