"""The page of photos in a browser: what is switched, ranked, saved and sent."""

from __future__ import annotations

import csv
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from pages import NASTY, Visit, check_colors
from searched import searched_page
from torch import Tensor

from mast.invariance.subspaces import Space, Subspaces
from mast.search.nearest import nearest

Shown = tuple[Path, Tensor, Subspaces]
PROPERTIES = {
    "color": ["color_jitter", "grayscale"], "focus": ["gaussian_blur"], "orientation": ["rotate"],
}  # fmt: skip
PHOTOS = 120


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    file = tmp_path_factory.mktemp("page") / "photos.html"
    return file, *searched_page(file, PHOTOS)


def settled(page: Any, act: Callable[[], Any]) -> None:
    """Do something that draws the page again, and wait for it."""
    before = page.evaluate("document.body.dataset.drawn")
    act()
    page.wait_for_function("before => document.body.dataset.drawn !== before", arg=before)


def near(page: Any) -> list[int]:
    """The photos on the screen, after the one that was chosen."""
    return [int(at) for at in page.locator("#view .tile").evaluate_all(
        "tiles => tiles.map((tile) => tile.dataset.at)")][1:]  # fmt: skip


def test_every_switch_ranks_as_python_does(visit: Visit, shown: Shown) -> None:
    file, features_NF, subspaces = shown
    shares = []

    def check(space: Space) -> None:
        moved_NJ = space(features_NF)
        (exact,) = nearest(moved_NJ, moved_NJ[3:4], 11)[1].tolist()
        shares.append(len({*exact} & {*near(page)[:10]}) / 10)

    with visit(file, "#photo=3.png") as page:
        page.wait_for_selector("#view .query")
        assert page.get_by_text("Most similar first, as the encoder sees them").is_visible()
        check(subspaces.ignoring([]))
        for name, operators in PROPERTIES.items():
            group = page.get_by_role("group", name=name)
            settled(page, group.get_by_label("ignored").check)
            assert page.url.endswith(f"ignore={name}")
            check(subspaces.ignoring(operators))
            settled(page, group.get_by_label("matched").check)
            assert page.get_by_text(f"by {name} alone (--match {name})").is_visible()
            check(subspaces.matching(operators))
            settled(page, group.get_by_label("counts").check)
        for names in (some for count in (2, 3) for some in combinations(PROPERTIES, count)):
            operators = [each for name in names for each in PROPERTIES[name]]
            for key, space in (("ignored", subspaces.ignoring), ("matched", subspaces.matching)):
                choice = {"ignored": [], "matched": [], key: [*names]}
                settled(page, lambda choice=choice: page.evaluate("c => { change(c); }", choice))
                check(space(operators))
    assert len(shares) == 2 * 2**3 - 1
    assert sum(shares) / len(shares) >= 0.97


def test_the_address_keeps_what_is_on_the_screen(visit: Visit, shown: Shown) -> None:
    with visit(shown[0]) as page:
        page.locator("#view .tile").nth(4).click()
        page.wait_for_selector("#view .query")
        settled(page, page.get_by_role("button", name="The same colors").click)
        address, order = page.url, near(page)
        settled(page, page.get_by_role("button", name="The same photo, edited").click)
        assert near(page) != order
        settled(page, page.go_back)
        assert near(page) == order
        settled(page, lambda: page.get_by_role("searchbox").fill("red"))
        assert {page.evaluate("at => DATA.labels[at]", at) for at in near(page)} == {"red"}
    with visit(shown[0], "#ignore=focus,color,focus,nothing&match=focus") as page:
        page.wait_for_selector("#view .tile")
        assert page.evaluate("[state.ignored, state.matched]") == [[], ["focus"]]
        assert page.get_by_role("group", name="color").get_by_label("ignored").is_checked()
    with visit(shown[0], address[address.index("#") :]) as page:
        page.wait_for_selector("#view .query")
        assert near(page) == order
        pressed = page.locator("#presets [aria-pressed=true]")
        assert pressed.all_inner_texts() == ["The same colors"]


def test_it_is_used_with_the_keyboard_alone(visit: Visit, shown: Shown) -> None:
    with visit(shown[0]) as page:
        page.wait_for_selector("#view .tile")
        for key in ("ArrowDown", "ArrowRight", "ArrowDown", "ArrowUp", "ArrowRight"):
            page.keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.at") == "2"
        settled(page, lambda: page.keyboard.press("Enter"))
        assert page.locator("#view .name").first.inner_text() == "2.png"
        for words in ("ignoring color", "by color alone", "as the encoder sees them"):
            settled(page, lambda: page.keyboard.press("1"))
            assert page.get_by_text(words).is_visible()
        page.get_by_role("group", name="focus").get_by_label("ignored").check()
        settled(page, lambda: page.keyboard.press("3"))
        assert page.get_by_text("ignoring focus and orientation").is_visible()
        settled(page, lambda: page.keyboard.press("Escape"))
        assert page.get_by_text(f"{PHOTOS} photos.").is_visible()
        settled(page, page.get_by_role("button", name="Outliers").click)
        address = page.url
        page.keyboard.press("1")
        assert page.url == address  # the switches are not on the screen
        page.locator("#view .tile").last.click()
        page.wait_for_selector("#view .query")
        assert page.locator("#view .name").first.inner_text() == "11.png"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_nothing_jumps(visit: Visit, shown: Shown, width: int, scheme: str) -> None:
    with visit(shown[0], "#photo=3.png", width, color_scheme=scheme) as page:
        page.wait_for_selector("#view .query")
        check_colors(page, scheme)
        assert page.evaluate(CONTRASTS) >= 4.5
        items = "[...document.querySelectorAll('#view li')].slice(0, 12)"
        where = f"{items}.map((item) => item.getBoundingClientRect().y)"
        before = page.evaluate(where)
        settled(page, page.get_by_role("button", name="The same colors").click)
        assert page.evaluate(where) == before
        for title in ("Map", "Copies", "Outliers", "Photos"):
            settled(page, page.get_by_role("button", name=title, exact=True).click)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.locator("b").count() == 0  # of the nasty name
            assert page.get_by_role("heading", level=1).inner_text() == NASTY


# The least contrast of a text and its ground, by WCAG 2.
CONTRASTS = """() => {
    const light = (color) => color.match(/\\d+/g).slice(0, 3).map((c) => c / 255)
        .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0.05);
    const ground = (node) => {
        const { backgroundColor } = getComputedStyle(node);
        const isClear = backgroundColor === "rgba(0, 0, 0, 0)";
        return isClear ? ground(node.parentElement) : backgroundColor;
    };
    const hasText = ({ childNodes }) =>
        [...childNodes].some(({ nodeType, data }) => nodeType === 3 && data.trim());
    const texts = [...document.querySelectorAll("body *:not(script)")].filter(hasText);
    return Math.min(...texts.map((node) => {
        const both = [light(getComputedStyle(node).color), light(ground(node))];
        return Math.max(...both) / Math.min(...both);
    }));
}"""


def test_photos_move_on_the_map(visit: Visit, shown: Shown) -> None:
    with visit(shown[0], "#view=Map") as page:
        page.wait_for_selector(".map")
        where = "[...document.querySelectorAll('.map li')].map((item) => item.style.left)"
        before = page.evaluate(f"window.first = document.querySelector('.map li'), {where}")
        assert len(before) == PHOTOS
        settled(page, page.get_by_role("button", name="The same colors").click)
        assert page.evaluate(where) != before
        assert page.evaluate("window.first === document.querySelector('.map li')")
        settled(page, lambda: page.get_by_role("searchbox").fill("12.png"))
        assert page.locator(".map li:visible").count() == 2  # 12.png and 112.png
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("ArrowDown")
        x, y = page.evaluate(
            "(([x, y], [a, b]) => [a - x, b - y])(...[...document.querySelectorAll('.map li')]"
            ".filter((item) => !item.hidden).map(({ offsetLeft: x, offsetTop: y }) => [x, y]))"
        )
        across = "ArrowRight" if x > 0 else "ArrowLeft"
        page.keyboard.press(across if abs(x) > abs(y) else "ArrowDown" if y > 0 else "ArrowUp")
        assert page.evaluate("document.activeElement.dataset.at") == "112"


def test_what_is_kept_and_what_is_no_copy_is_saved(visit: Visit, shown: Shown) -> None:
    with visit(shown[0], "#view=Copies") as page:
        keep = page.get_by_role("checkbox", name="keep")
        assert [keep.nth(at).is_checked() for at in range(3)] == [True, False, False]
        page.get_by_role("checkbox", name="not a copy").check()
        assert keep.nth(1).is_checked()
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save the list of unticked photos").click()
        assert saved.value.path().read_text() == "7.png\n"
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save the pairs that are not copies").click()
        with saved.value.path().open(encoding="utf-8", newline="") as table:
            assert list(csv.reader(table)) == [["path", "other"], ["2.png", "5.png"]]
        page.locator("#view .tile").nth(1).click()
        assert page.get_by_role("dialog").locator("figcaption").all_inner_texts() == [
            "2.png", "5.png", "difference (photos not aligned)",
        ]  # fmt: skip
        page.keyboard.press("Escape")
        assert page.get_by_role("dialog").count() == 0


def test_a_page_of_5000_photos(visit: Visit, tmp_path: Path) -> None:
    file = tmp_path / "many.html"
    searched_page(file, 5000)
    assert file.stat().st_size < 25e6
    with visit(file) as page:
        page.wait_for_selector("#view .tile")
        assert page.locator("#view .tile").count() == 500
        settled(page, page.get_by_role("button", name="Show 500 more").click)
        assert page.locator("#view .tile").count() == 1000
        page.locator("#view .tile").nth(999).click()
        page.wait_for_selector("#view .query")
        settled(page, page.get_by_role("button", name="The same photo, edited").click)
        assert len(near(page)) == 60
