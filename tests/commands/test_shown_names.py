"""Names that would act on a terminal, or be markup: all commands show them as text."""

import io
import logging
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from mast.cli import main
from mast.core import display
from mast.core.display import doing, say
from mast.core.errors import one_line, visible
from mast.core.run import RunFolder
from mast.core.table import TextTable

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
        assert "fault of mast" not in shown.err
    assert main(["outliers", train, "--encoder", run, "--max_broken", "0"]) == 2
    broken = capfd.readouterr().err
    assert f"broken{SHOWN}.jpg" in broken
    assert not any(line.startswith("error: é") for line in broken.splitlines())


def test_what_is_logged_or_warned_of_is_shown_as_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("mast"), "propagate", False)  # to pytest
    main(["show", "recipes"])
    capsys.readouterr()
    logging.getLogger("mast").warning("%s is broken", NAME)
    say(NAME)
    sys.stderr.write(warnings.formatwarning(f"glyph {NAME}", UserWarning, "file.py", 1))
    shown = capsys.readouterr().err
    assert acts(shown) == []
    assert shown.startswith(f"{SHOWN} is broken\n{SHOWN}\n")


def test_a_terminal_gets_no_other_sequences_than_of_style() -> None:
    table = TextTable(title=NAME, caption=NAME)
    for column in (NAME, "number"):
        table.add_column(column)
    table.add_row(NAME, NAME)
    console = Console(force_terminal=True, width=300, file=io.StringIO())  # of a notebook, say
    with doing(NAME, 10, "images") as work:
        work.update(0, NAME)
        console.print(display._board.get_renderable(), table)
    text = re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue())  # type: ignore[attr-defined]
    assert acts(text) == []
    assert text.count(":smile:") == text.count("[red]") == 7
