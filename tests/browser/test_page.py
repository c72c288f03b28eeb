"""The pages in a browser: every control works, by mouse and by keyboard, and nothing is loaded.

Needs `pip install -e '.[browser]'` and a Chromium, which MAST_CHROMIUM names or the path has.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from pages import NASTY, OPERATORS, look_into, make_run, measure
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
LARGEST = 10_000_000  # bytes
SETTLED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
POSITIONS = "dots => dots.map(dot => dot.style.transform)"


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
    """The page with its scripts; whatever the test does, nothing is loaded and nothing fails."""
    seen = visit(
        browser, file.as_uri(), reduced_motion="reduce", viewport={"width": 1280, "height": 900}
    )
    yield seen
    others = [url for url in seen.requests if not url.startswith("data:")]
    assert others == [file.as_uri()]
    assert seen.complaints == []
    seen.page.context.close()


def test_it_is_small_and_every_figure_has_a_caption(seen: Visit, file: Path) -> None:
    assert file.stat().st_size < LARGEST
    figures = seen.page.locator("main figure")
    assert figures.count() == len(MADE)
    for at in range(len(MADE)):
        figure = figures.nth(at)
        assert figure.locator("svg").bounding_box()["height"] > 100  # type: ignore[index]
        assert len(figure.locator("figcaption").inner_text()) > 20
        assert figure.locator("svg").get_attribute("aria-label")


def test_every_table_sorts_both_ways(seen: Visit) -> None:
    seen.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    tables = seen.page.locator("table.sortable")
    assert tables.count() >= 6
    for table in (tables.nth(at) for at in range(tables.count())):
        heads = table.locator("thead th")
        for column in range(heads.count()):
            head = heads.nth(column)
            for order in ("ascending", "descending"):
                head.locator("button").click()
                assert head.get_attribute("aria-sort") == order
                assert table.locator("th[aria-sort]").count() == 1
                cells = table.locator(f"tbody tr > :nth-child({column + 1})")
                if "number" in (head.get_attribute("class") or ""):
                    said = cells.evaluate_all("cells => cells.map(cell => cell.dataset.number)")
                    values = [float(value) for value in said if value]
                    assert said[len(values) :] == [""] * (len(said) - len(values))
                else:
                    values = cells.evaluate_all(
                        "cells => cells.map((a, i) => i && Math.sign(a.textContent.localeCompare("
                        "cells[i - 1].textContent, 'en', {numeric: true})))"
                    )
                    values = [value for value in values if value] or [0]
                    assert len(set(values)) == 1
                    values = values if order == "ascending" else [-value for value in values]
                    assert values[0] in (0, 1)
                    continue
                assert values == sorted(values, reverse=order == "descending")


def test_tips_by_mouse_and_by_keyboard(seen: Visit) -> None:
    page, bubble = seen.page, seen.page.locator(".bubble")
    plots = page.locator(".plot:has(.tip)")
    assert plots.count() >= 5
    for plot in (plots.nth(at) for at in range(plots.count())):
        tips = plot.locator(".tip")
        tips.first.scroll_into_view_if_needed()
        page.evaluate(SETTLED)
        tips.first.dispatch_event("mouseenter")
        assert bubble.inner_text() == tips.first.get_attribute("aria-label")
        tips.first.dispatch_event("mouseleave")
        assert bubble.is_hidden()
        assert plot.locator(".tip[tabindex='0']").count() == 1
        tips.first.focus()
        page.keyboard.press("ArrowRight")
        assert bubble.is_visible()
        assert bubble.inner_text() == tips.nth(1).get_attribute("aria-label")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert bubble.inner_text() == tips.last.get_attribute("aria-label")
        page.keyboard.press("Escape")
        assert bubble.is_hidden()
    bar = page.locator("#predictions .tip").first
    bar.hover()
    assert "%" in bubble.inner_text()


def test_the_map_by_mouse(seen: Visit) -> None:
    page, area = seen.page, seen.page.locator("#map-subspaces")
    dots = area.locator(".plane > g")
    assert dots.count() == 24
    places = []
    for name in (*(name.replace("_", " ") for name in OPERATORS), "whole embedding"):
        area.get_by_text(name, exact=True).click()
        assert area.get_by_role("radio", name=name).is_checked()
        places.append(tuple(dots.evaluate_all(POSITIONS)))
    assert len(set(places)) == len(OPERATORS) + 1
    inks = []
    for option in ("0", "1"):
        area.get_by_role("combobox").select_option(option)
        painted = area.locator("circle").evaluate_all("all => all.map(a => a.getAttribute('fill'))")
        legend = area.locator(".legend li").all_inner_texts()
        assert len(set(painted)) == len(legend)
        inks.append(legend)
    assert [NASTY in legend for legend in inks].count(True) == 1
    dots.nth(3).hover()
    caption = area.locator(".looked-at p").inner_text()
    assert ".jpg" in caption
    dots.last.click()  # what is pointed at is drawn last
    assert area.locator(".kept").count() == 1
    area.get_by_text("rotate", exact=True).click()
    assert area.locator(".kept").count() == 1
    assert area.locator(".pinned button").get_attribute("aria-label") == f"Unpin {caption}"
    area.get_by_label("Show the images").check()
    assert area.locator("image").count() == 24
    area.get_by_label("Show the images").uncheck()
    assert area.locator("image").count() == 0
    area.locator(".pinned button").click()
    assert area.locator(".kept").count() == 0
    assert page.locator("#map-subspaces h3").is_visible()


def test_the_map_by_keyboard(seen: Visit) -> None:
    page, area = seen.page, seen.page.locator("#map-subspaces")
    area.locator(".plane").focus()
    captions = set()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
        captions.add(area.locator(".looked-at p").inner_text())
    assert len(captions) > 1
    page.keyboard.press("Enter")
    assert area.locator(".kept").count() == 1
    page.keyboard.press("Escape")
    assert area.locator(".kept").count() == 0
    area.get_by_role("radio", name="whole embedding").focus()
    page.keyboard.press("ArrowLeft")
    assert area.get_by_role("radio", name="invert").is_checked()


def test_larger_images(seen: Visit) -> None:
    page, dialog = seen.page, seen.page.locator("dialog")
    galleries = page.locator(".gallery")
    assert galleries.count() == 3  # the neighbours, and two of the uncertainty
    for gallery in (galleries.nth(at) for at in range(1, 3)):
        buttons = gallery.locator("button")
        buttons.nth(1).click()
        assert "2 of 12" in dialog.inner_text()
        assert ".jpg: 0." in dialog.inner_text() or ".jpg: 1." in dialog.inner_text()
        page.keyboard.press("ArrowRight")
        assert "3 of 12" in dialog.inner_text()
        dialog.get_by_role("button", name="Previous").click()
        dialog.get_by_role("button", name="Previous").click()
        dialog.get_by_role("button", name="Previous").click()
        assert "12 of 12" in dialog.inner_text()  # round the end
        dialog.get_by_role("button", name="Next").click()
        assert "1 of 12" in dialog.inner_text()
        page.keyboard.press("Escape")
        assert dialog.is_hidden()
        buttons.nth(0).focus()
        page.keyboard.press("Enter")
        dialog.get_by_role("button", name="Close").click()
        assert dialog.is_hidden()


def test_the_keyboard_reaches_everything(seen: Visit) -> None:
    page = seen.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0  # type: ignore[index]
    page.keyboard.press("Enter")
    assert page.url.endswith("#answer")
    reached, unseen = set(), []
    for _ in range(400):
        page.keyboard.press("Tab")
        name, outlined = page.evaluate(
            "(({tagName, className}) => [tagName.toLowerCase() + '.' + (className.baseVal ?? "
            "className), getComputedStyle(document.activeElement).outlineStyle])"
            "(document.activeElement)"
        )
        if name == "body.":
            break
        reached.add(name)
        if outlined == "none" and not name.startswith("input"):  # its label has the outline
            unseen.append(name)
    else:
        raise AssertionError("400 stops of the Tab key are too many")
    assert unseen == []
    wanted = ("a.", "button.", "summary.", "div.wide", "div.plot", "g.tip", "select.", "svg.plane")
    assert set(wanted) <= reached


def test_the_neighbours_are_rows(seen: Visit) -> None:
    strip = seen.page.locator("#answer .gallery")
    boxes = strip.locator("img").evaluate_all("all => all.map(a => a.getBoundingClientRect().top)")
    assert len(boxes) == 4 * 7
    assert [len(set(boxes[at : at + 7])) for at in range(0, 28, 7)] == [1] * 4
    assert len(set(boxes)) == 4
    strip.locator("button").nth(7).click()
    assert "8 of 28: query: " in seen.page.locator("dialog").inner_text()


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("width", [375, 1280])
def test_what_is_wider_than_the_screen_says_so(
    browser: Browser, file: Path, width: int, scripts: bool
) -> None:
    size = {"width": width, "height": 800}
    seen = visit(browser, file.as_uri(), viewport=size, java_script_enabled=scripts)
    summaries = seen.page.locator("summary")
    for at in range(summaries.count()):
        summaries.nth(at).click()
    regions = seen.page.locator(".plot, .gallery.rows" + (", .wide" if scripts else ""))
    found = regions.evaluate_all(
        "all => all.map(region => [region.scrollWidth > region.clientWidth, "
        "region.previousElementSibling.checkVisibility()])"
    )
    assert len(found) > len(MADE)
    assert all(wider == said for wider, said in found)
    assert any(wider for wider, _ in found) or width > 1000
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
    # What is written on colors keeps its own, whatever the page's are.
    cells = seen.page.locator("#advice svg text", has_text=re.compile(r"^[+-]\d+$"))
    assert cells.count() == 6
    inks = cells.evaluate_all("texts => texts.map(text => getComputedStyle(text).fill)")
    assert set(inks) == {"rgb(17, 17, 17)", "rgb(255, 255, 255)"}
    assert seen.complaints == []
    seen.page.context.close()


def test_without_scripts_nothing_is_missing(browser: Browser, file: Path) -> None:
    seen = visit(browser, file.as_uri(), java_script_enabled=False)
    page = seen.page
    assert page.locator("main figure svg").count() == len(MADE)
    assert page.locator("figcaption:visible").count() == len(MADE)
    assert page.locator("g.tip > title").count() > 50
    assert page.locator(".gallery img:visible").count() == 28 + 24
    summaries = page.locator("summary")
    for at in range(summaries.count()):
        summaries.nth(at).click()
    tables = page.locator("table")
    assert page.locator("table:visible").count() == tables.count() >= 6
    assert page.locator(".sheet:visible").count() == 1
    assert page.locator("button:visible, select:visible").count() == 0  # they would do nothing
    assert seen.complaints == []
    page.context.close()


def test_on_paper_everything_is_open(seen: Visit) -> None:
    page = seen.page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("nav").is_hidden()
    assert page.locator("#map-subspaces").is_hidden()
    assert page.locator("main figure svg:visible").count() == len(MADE)
    assert page.locator("table:visible").count() == page.locator("table").count()
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
        seen.page.get_by_role("button", name="Save what is not a copy").click()
    with saved.value.path().open(encoding="utf-8", newline="") as table:
        assert list(csv.reader(table)) == [["path", "other"], [NASTY, 'a"b,c.png']]
    assert saved.value.suggested_filename == "not_copies.csv"
    assert seen.complaints == []
    seen.page.context.close()
