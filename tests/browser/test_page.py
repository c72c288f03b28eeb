"""The pages in a browser: they fit any screen and paper, and load nothing.

Needs `pip install -e '.[browser]'` and a Chromium, which MAST_CHROMIUM names or the path has.
"""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from pages import NASTY, look_into, make_run, measure
from tiny_evaluation import tiny_set

from mast.analyses import ANALYSES
from mast.page import GalleryRow, Item, write_gallery
from paper.report import report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request
else:
    pytest.importorskip("playwright", reason="needs pip install -e '.[browser]'")

CHROMIUM = os.environ.get("MAST_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a Chromium: apt-get install chromium, or set MAST_CHROMIUM"
)
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
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


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page that was opened, and all that it asked for or complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def visit(browser: Browser, address: str, **options: Any) -> Visit:
    """Open a page; `options` are those of a browser's context."""
    page = browser.new_context(**options).new_page()
    seen = Visit(page)

    def asked(request: Request) -> None:
        seen.requests.append(request.url)

    page.on("request", asked)
    page.on("console", lambda message: seen.complaints.append(message.text))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.goto(address)
    return seen


@pytest.fixture
def seen(browser: Browser, file: Path) -> Iterator[Visit]:
    """The page; whatever the test does, nothing is loaded and nothing fails."""
    seen = visit(browser, file.as_uri(), viewport={"width": 1280, "height": 900})
    yield seen
    others = [url for url in seen.requests if not url.startswith("data:")]
    assert others == [file.as_uri()]
    assert seen.complaints == []
    seen.page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_it_fits(browser: Browser, file: Path, width: int, scheme: str) -> None:
    size = {"width": width, "height": 800}
    seen = visit(browser, file.as_uri(), viewport=size, color_scheme=scheme)
    seen.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    ground, ink = seen.page.evaluate(
        "(({backgroundColor, color}) => [backgroundColor, color])(getComputedStyle(document.body))"
    )
    lightness = [sum(map(int, said.strip("rgb()").split(","))) for said in (ground, ink)]
    assert (lightness[0] > lightness[1]) == (scheme == "light")
    assert abs(lightness[0] - lightness[1]) > 400
    assert seen.complaints == []
    seen.page.context.close()


def test_on_paper_everything_is_open(seen: Visit) -> None:
    page = seen.page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("nav").is_hidden()
    assert page.locator("main figure img:visible").count() == len(MADE)
    assert page.locator("table:visible").count() == page.locator("table").count() >= 6
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert len(page.pdf()) > 10_000


def test_what_is_no_copy_is_saved(browser: Browser, tmp_path: Path) -> None:
    file, canvases = tmp_path / "copies.html", tiny_set(2)
    pairs = [(), (NASTY, 'a"b,c.png'), ("x", "y")]
    write_gallery(
        file, "a", "b", [GalleryRow("c", [Item(canvases, 0, "", pair=pair) for pair in pairs])]
    )
    seen = visit(browser, file.as_uri())
    seen.page.get_by_role("checkbox").first.check()
    with seen.page.expect_download() as saved:
        seen.page.get_by_role("button", name="Save the pairs that are not copies").click()
    with saved.value.path().open(encoding="utf-8", newline="") as table:
        assert list(csv.reader(table)) == [["path", "other"], [NASTY, 'a"b,c.png']]
    assert saved.value.suggested_filename == "not_copies.csv"
    assert seen.complaints == []
    seen.page.context.close()
