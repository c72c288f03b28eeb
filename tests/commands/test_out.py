"""What a command may write over: what it wrote itself, or nothing; said before any work."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mast
from mast.cli import main
from mast.core.run import RunFolder
from mast.core.table import write_table

PAGE = "<!doctype html><title>not ours</title>" + 2000 * " "
# By the kind of a file, how somebody else's is written.
THEIRS: dict[str, Callable[[Path], object]] = {
    ".csv": lambda path: path.write_text("name,grade\na,1\n"),
    ".parquet": lambda path: write_table(path, {"name": ["a"], "grade": [1]}),
    ".html": lambda path: path.write_text(PAGE),
    ".npz": lambda path: np.savez(path, x=np.zeros(3)),
    ".safetensors": lambda path: path.write_bytes(b"weights"),
    ".png": lambda path: Image.new("RGB", (3, 3)).save(path),
}
TABLES = (".csv", ".parquet", ".html")
# By command, its words, and the endings that it writes. None of them comes to its work.
FILES: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "predict": (["nowhere", "--classifier", "nowhere"], (".csv", ".parquet")),
    "embed": (["toys", "--encoder", "nowhere"], (".npz", ".parquet")),
    "neighbours": (["toys", "--encoder", "nowhere", "--query", "0"], TABLES),
    "duplicates": (["toys", "--encoder", "nowhere"], TABLES),
    "outliers": (["toys", "--encoder", "nowhere"], TABLES),
    "fit": (["toys", "--encoder", "nowhere"], (".safetensors",)),
    "show views": (["nowhere", "--recipe", "mast_c5_small"], (".png",)),
    "report": (["{run}"], (".html",)),
}
FOLDERS = {
    "pretrain": ["{photos}", "--recipe", "mast_c5_small", "--device", "cpu"],
    "shard": ["nowhere"],
    "export": ["{run}"],
}


def answer(
    verb: str, words: list[str], out: Path, places: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, str]:  # fmt: skip
    given = [word.format_map(places) for word in words]
    code = main([*verb.split(), *given, "--out", str(out)])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("verb", FILES)
def test_a_file_that_is_not_the_commands_own_stays(
    verb: str, ours: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, endings = FILES[verb]
    for target in (*(tmp_path / f"theirs{ending}" for ending in THEIRS), ours.config):
        if not target.exists():
            THEIRS[target.suffix](target)
        before = hashlib.sha256(target.read_bytes()).digest()
        code, said = answer(verb, words, target, {"run": ours.path}, capsys)
        assert (code, said.count("\n")) == (2, 1), said
        own = target.suffix in endings
        expected = "was not written by this command" if own else "expected a name ending in"
        assert expected in said
        assert str(target) in said
        assert hashlib.sha256(target.read_bytes()).digest() == before


@pytest.mark.parametrize("verb", FOLDERS)
def test_a_folder_that_is_not_the_commands_own_stays(
    verb: str, ours: RunFolder, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, theirs = tmp_path / "photo.jpg", tmp_path / "theirs"
    (theirs / "table6").mkdir(parents=True)
    notes = [theirs / name for name in ("notes.txt", "table6/small.csv", "index.json")]
    for note in (file, *notes):
        note.write_text("mine")
    places = {"run": ours.path, "photos": photos}
    for target in (file, theirs):
        code, said = answer(verb, FOLDERS[verb], target, places, capsys)
        assert code == 2
        assert str(target) in said.splitlines()[-1]
    assert file.read_text() == "mine"
    assert {each for each in theirs.rglob("*") if each.is_file()} == {*notes}
    assert all(each.read_text() == "mine" for each in notes)


def test_what_a_command_wrote_it_writes_again(
    ours: RunFolder, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run, data = ours.path, photos / "test"
    config = mast.configure("mast_c5_small", data=str(data), size=32)
    classifier = mast.fit(photos, run, out="c.safetensors", settings={"penalties": [1e-3]}).path

    calls: list[Callable[[], object]] = [
        lambda: mast.outliers(data, run, "o.csv", labels=False),
        lambda: mast.duplicates(data, run, out="d.parquet"),
        lambda: mast.neighbours(data, "0", run, k=2, out="n.html"),
        lambda: mast.predict(data, classifier, "p.csv", every_class=True),
        lambda: mast.embed(data, run, "e.npz"),
        lambda: mast.show_views(config, "v.png", images=1),
        lambda: mast.report(run, out="r.html"),
        lambda: mast.fit(photos, run, out=classifier, settings={"penalties": [1e-3]}),
    ]
    for call in calls:
        call()
        call()
