"""The command of the repository, which is parsed as `mast` is."""

import pytest

from mast.cli import main
from paper.__main__ import PROGRAM

pytestmark = pytest.mark.usefixtures("baselines")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("--help", 0, "usage: python -m paper COMMAND [options]\n\n  reproduce "),
        ("reproduce --help", 0, "Usage: python -m paper reproduce TABLE [options]"),
        ("reproduce", 2, "See `python -m paper reproduce --help`"),
        ("reproduce tabel6 --data a --out b", 2, "Did you mean 'table6'"),
        (f"reproduce table6 --data a --out {__file__}", 2, "out: expected a folder"),
        ("reproduec", 2, "Did you mean 'reproduce'"),
        ("show recipes", 0, "vi_simsiam_small"),
        ("show config --recipe looc_small", 0, "preserved:"),
        ("show protocols", 0, "segmentation"),
        ("analyze runs/x --analyses invarianc", 2, "Did you mean 'invariance'"),
        ("study epochs runs/x --data y --seeds -1 0", 2, "seeds must be"),
        ("study epochs --data y runs/x", 2, "runs/x is not a run folder"),
    ],
)
def test_what_it_says(
    words: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split(), PROGRAM) == code
    assert message in capsys.readouterr()[code // 2]
