"""The page of a run in a browser: it fits any screen and paper, and loads nothing."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from pages import Visit, check_colors, look_into, make_run, measure

from mast.analyses import ANALYSES
from paper.report import report

MADE = (
    "curves", "masks", "subspaces", "neighbours", "invariance", "advice", "predictions",
    "uncertainty",
)  # fmt: skip


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run that has everything, beside two others."""
    root = tmp_path_factory.mktemp("runs")
    run, other = make_run(root / "ours"), make_run(root / "theirs", "vicreg5_small")
    measure(run, "linear", (70.0, 40.0, 9.0))
    measure(run, "knn", (50.0,))
    measure(other, "linear", (55.0, 60.0, 10.0))
    look_into(run, MADE)
    with patch.dict(ANALYSES):  # to which it adds those of the paper
        return report(run.path, beside=[str(other.path)])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_it_fits(visit: Visit, file: Path, width: int, scheme: str) -> None:
    with visit(file, width=width, color_scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        check_colors(page, scheme)


def test_on_paper_everything_is_open(visit: Visit, file: Path) -> None:
    with visit(file) as page:
        page.emulate_media(media="print", color_scheme="dark")
        assert page.locator("nav").is_hidden()
        assert page.locator("main figure img:visible").count() == len(MADE)
        assert page.locator("table:visible").count() == page.locator("table").count() >= 6
        ground = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(ground) == "rgb(255, 255, 255)"
        assert len(page.pdf()) > 10_000
