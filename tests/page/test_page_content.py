"""The page: it opens with the answer, stands alone, and says what is missing."""

import json
import math
import re
import shlex
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from pages import NASTY, Page, look_into, make_run, measure

import mast
from mast.analyses import ANALYSES
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.page.page import signs_of_trouble
from paper.report import report

MADE = ("curves", "masks", "subspaces", "invariance", "advice", "predictions", "uncertainty")


def written(run: RunFolder, **options: object) -> Page:
    """The page of a run with all that the paper adds."""
    return Page(report(run.path, **options).read_text())  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return make_run(tmp_path / "ours")


def test_the_whole_page(run: RunFolder, tmp_path: Path) -> None:
    measure(run, "linear", (70.0, 40.0))
    measure(run, "knn", (30.0,), by_chance=12.5)
    look_into(run, MADE)
    file = run.analysis / "uncertainty.npz"
    with np.load(file) as kept:
        arrays = dict(kept)
    arrays["class_score"].flat[0] = np.nan
    np.savez(file, **arrays)  # type: ignore[arg-type]
    other = make_run(tmp_path / "theirs", "vicreg5_small")
    measure(other, "linear", (50.0, 60.0))
    page = written(run, beside=[str(other.path)])
    assert page.tags.count("figure") == page.tags.count("figcaption") == len(MADE)
    for name in MADE:
        assert ANALYSES[name].title in page.text
    assert page.text.count(NASTY) == 1  # in a table
    assert "nan" not in page.text.lower()  # what is not finite has no number
    assert "–" in page.text
    text = unescape((run.path / "report.html").read_text())
    assert "default-src 'none'; img-src data:;" in text
    assert not {"script", "b"} & set(page.tags)
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)


def test_the_page_opens_with_the_verdict(run: RunFolder) -> None:
    measure(run, "linear", (70.0,))
    measure(RunFolder(run.untrained), "linear", (30.0,))
    look_into(run, ("curves", "neighbours"))
    page = written(run)
    opening = [
        "Better than the untrained encoder on photos: linear accuracy +40.0 points [",
        "Each row: an image, and the 6 nearest of 10",
        "The loss went from",
        "Nothing collapsed or diverged.",
        "MAST-C (ours) trained ",
        "before pretraining",
        "Which augmentations",
    ]
    body = page.text.rpartition("What was run")[0].partition("What was run")[2]  # after the menu
    assert [words for words in opening if words not in body] == []
    places = [body.index(words) for words in opening]
    assert places == sorted(places)
    assert page.tags.count("img") == 4 * 7 + 2  # four queries with six neighbors, two figures


@pytest.mark.parametrize(
    ("before", "looks", "verdict"),
    [
        (30.0, "verdict good", "Better than the untrained encoder"),
        (70.0, "verdict", "Not distinguishable from the untrained encoder"),
        (100.0, "verdict bad", "Worse than the untrained encoder"),
    ],
)
def test_only_what_is_clearly_better_is_green(
    before: float, looks: str, verdict: str, run: RunFolder
) -> None:
    measure(run, "linear", (70.0,))
    measure(RunFolder(run.untrained), "linear", (before,))
    text = report(run.path).read_text()
    assert f'<p class="{looks}">{verdict}' in text
    # In the tables, what is inside its interval looks like everything else.
    marked = re.findall(r'<small class="clear">(.*?)</small>', text)
    assert len(marked) == 2 * (looks != "verdict")  # among the main and among all measures


def test_what_a_run_started_from_is_called_so(run: RunFolder) -> None:
    measure(run, "linear", (70.0,))
    measure(RunFolder(run.untrained), "linear", (30.0,))
    run.provenance.write_text(json.dumps({"started_from": {"size": 32}}))
    text = written(run).text
    assert "Better than the weights it started from on photos: linear accuracy" in text
    assert "before pretraining the weights it started from" in text
    assert "untrained" not in text


def test_a_bare_run_says_what_is_missing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run; touch x")
    page = written(run)
    assert "Nothing has been measured yet." in page.text
    assert page.text.count("Not computed yet.") == len(ANALYSES)
    name = shlex.quote(str(run.path))  # one word to a shell
    commands = (f" analyze {name} --data SET --analyses", "python -m paper study")
    assert sum(map(page.text.count, commands)) == len(ANALYSES)
    assert "What pretraining added is unknown: nothing has been measured yet." in page.text
    assert f"mast evaluate {name} --data SET --untrained" in page.text
    assert page.found["src"] == []


def test_warnings_and_losses_that_are_not_finite(run: RunFolder) -> None:
    warning = "variance collapse: <b>it</b> fell & stayed"
    for _ in range(2):
        run.append_metrics({"step": 4, "warning": warning})
    run.append_metrics({"step": 5, "epoch": 9.0, "loss": math.nan, "lr": 0.1})
    run.encoder.unlink()
    look_into(run, ("curves",))
    page = written(run)
    assert "It is not finished." in page.text
    assert page.text.count(warning) == 1  # as text, not as markup
    assert "1 logged losses were not finite" in page.text
    assert "The loss diverged." in page.text


@pytest.mark.parametrize(
    ("log", "signs"),
    [
        ([], []),
        ([{"loss": 1.0}], []),
        ([{"loss": 1.0, "online/effective_rank": 1.2}], ["The representation collapsed."]),
        ([{"loss": 1.0, "stat/embedding_std": 0.1}], ["The embedding collapsed."]),
        ([{"loss": math.inf}, {"loss": 1.0}], ["The loss was not always finite."]),
        ([{"loss": 1.0}, {"warning": "masks died"}], ["Warnings were logged."]),
        ([{"online/effective_rank": math.nan}], ["The representation is not finite."]),
        ([{"stat/embedding_std": math.nan}], ["The embedding is not finite."]),
    ],
)
def test_signs_of_trouble(log: list[dict[str, object]], signs: list[str]) -> None:
    assert signs_of_trouble(log) == signs


def test_what_is_refused(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run folder"):
        mast.report(tmp_path / "none")
    with pytest.raises(UserError, match="has no evaluations; run"):
        mast.report(run.path, beside=[str(run.path)])
