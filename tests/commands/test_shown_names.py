"""Names that would act on a terminal, or be markup: all commands show them as text."""

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mast.cli import main
from mast.core.errors import one_line, visible
from mast.core.run import RunFolder

ACTING = "\x1b[31m\x1b]8;;http:x\x07y\x1b]8;;\x07\x9b2J\b\r\t\u202e\u2066\u200b"
NAME = f"a{ACTING}[red]:smile:[link=x]\nerror: é日本🙂👩\u200d👧"
SHOWN = (
    r"a\x1b[31m\x1b]8;;http:x\x07y\x1b]8;;\x07\x9b2J\x08\r\t\u202e\u2066\u200b[red]:smile:[link=x]"
    "\\nerror: é日本🙂👩\u200d👧"
)


def acts(text: str) -> list[str]:
    """What of a text is more than characters on lines."""
    return re.findall(r"[^\n\x20-\x7e\xa0-\U0010ffff]|[\u200b\u202a-\u202e\u2066-\u2069]", text)


@pytest.fixture
def named(photos: Path, tmp_path: Path) -> Path:
    """A set of two classes and a broken image, all of which are called so."""
    root = tmp_path / NAME
    for part in ("train", "test"):
        for label in range(2):
            folder = root / part / f"{label}{NAME}"
            folder.mkdir(parents=True)
            for at, file in enumerate(sorted((photos / part / f"class{label}").iterdir())[:6]):
                shutil.copy(file, folder / f"{at}{NAME}.jpg")
    (root / "train" / f"0{NAME}" / f"broken{NAME}.jpg").write_bytes(b"no image")
    return root


def test_a_name_is_escaped_and_what_is_printable_stays() -> None:
    assert one_line(NAME) == SHOWN
    assert visible(NAME) == SHOWN.replace("\\n", "\n")
    assert one_line("broken:\n  a.jpg\n  b.jpg\nc") == "broken:\n  a.jpg\n  b.jpg\\nc"


def test_every_command_shows_names_as_text(
    trained: Callable[..., RunFolder],
    named: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("mast"), "propagate", False)  # to pytest
    monkeypatch.chdir(tmp_path)
    run = str(trained("plain", tmp_path / f"run{NAME}").path)
    train, test = str(named / "train"), str(named / "test")
    for words in (
        ["show", "cache"],
        ["outliers", train, "--encoder", run],  # whose image is broken
        ["neighbours", test, "--encoder", run, "--query", "0", "--k", "2"],
        ["duplicates", test, "--encoder", run],
        ["fit", test, "--encoder", run],
        ["predict", test, "--classifier", run],
        ["predict", test, "--classifier", run, "--out", f"t{NAME}.txt"],
        ["evaluate", run, "--data", str(named), "--protocols", "knn"],
        ["compare", run],
        ["report", run],
        ["embed", test, "--encoder", run, "--out", f"e{NAME}.npz"],
        ["pretrain", "--help", "--out", NAME],
        ["plan", f"--{NAME}"],
        [NAME],
    ):
        main(words)
        shown = capfd.readouterr()
        assert acts(shown.out) == acts(shown.err) == [], words[0]
        assert shown.out + shown.err
        assert "Traceback" not in shown.err
        assert "bug in mast" not in shown.err
    assert main(["shard", train, "--out", "shards", "--max_broken", "0"]) == 2
    broken = capfd.readouterr().err
    assert f"broken{SHOWN}.jpg" in broken
    assert not any(line.startswith("error: é") for line in broken.splitlines())
