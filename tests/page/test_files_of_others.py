"""Whatever the files of a run folder hold: a page without it, which loads and runs nothing."""

import warnings
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from pages import look_into, make_run

import mast
from mast.analyses.figure import as_svg, empty, tip
from mast.core.files import read_markup, signed
from mast.page.html import element

HOSTILE = "</script><script>alert(1)</script>\"' onload=x {{ 7*7 }}\x1b\u202e"
SVG = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'


class Elements(HTMLParser):
    """What of a page a browser would act on: its elements with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def figure() -> str:
    """An SVG as matplotlib writes it, with texts, a marker, an image, a clip and a tip."""
    drawn = empty(1.0)
    axis = drawn.subplots()
    (line,) = axis.plot([0, 1], [1, 0], "o--", label=HOSTILE)
    tip(line, f'{HOSTILE}\n"x')
    axis.imshow(np.zeros((2, 2)))
    axis.set_title(HOSTILE)
    axis.text(0, 0, "$x^2$ one\ntwo", rotation=30, parse_math=True)
    axis.legend()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no font has such characters
        return as_svg(drawn, "curves")


def test_what_matplotlib_draws_is_shown(figure: str) -> None:
    shown = element(figure, "curves", HOSTILE)
    assert shown is not None
    found = Elements(shown).found
    assert {"svg", "path", "use", "image", "clippath", "text", "title"} <= {tag for tag, _ in found}
    assert {tag for tag, _ in found}.isdisjoint({"script", "style", "metadata"})
    assert sum("class" in attributes for _, attributes in found) == 1  # the tip
    assert [of for _, of in found if any(name.startswith("on") for name in of)] == []
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert shown.count("&lt;/script&gt;&lt;script&gt;") == 4  # label, tip, title and legend


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        '<meta xmlns="http://www.w3.org/1999/xhtml" http-equiv="refresh" content="0;url=http://x"/>',
        '<meta http-equiv="refresh" content="0;url=http://x"/>',
        '<a xlink:href="javascript:alert(1)"><path d=""/></a>',
        '<a href="http://x"><path d=""/></a>',
        '<image xlink:href="http://x/a.png" width="1" height="1"/>',
        '<image xlink:href="data:image/svg+xml;base64,AAAA" width="1" height="1"/>',
        '<image href="data:image/png;base64,AAAA" width="1" height="1"/>',
        '<use xlink:href="http://x/a.svg#a"/>',
        '<use xlink:href="other.svg#a"/>',
        "<foreignObject><p>x</p></foreignObject>",
        '<path onclick="alert(1)" d="M 0 0"/>',
        '<path style="fill: url(http://x)"/>',
        "<path style=\"fill: url('x.svg')\"/>",
        '<path style="fill: image-set(x)"/>',
        '<path style="fill: \\75rl(x)"/>',
        '<path style="fill: red; } @import x; {"/>',
        '<g clip-path="url(x.svg#a)"/>',
        '<g class="bubble"/>',
        '<g tabindex="7"/>',
        '<g id="answer"/>',
        '<g id="curves"/>',
        '<animate attributeName="href" to="javascript:alert(1)"/>',
        '<set attributeName="onclick" to="alert(1)"/>',
        f"<svg {SVG} viewBox='0 0 1 1'/>",
        '<g xml:base="http://x"/>',
        '<x:g xmlns:x="http://x"/>',
        "&entity;",
        "<!DOCTYPE svg>",
        "<g>",
        "</svg><script/>",
    ],
)
def test_what_it_does_not_draw_leaves_the_figure_out(figure: str, inside: str) -> None:
    assert element(figure.replace("</svg>", f"{inside}</svg>"), "curves", "x") is None


def test_what_a_page_never_shows_may_be_anything(figure: str) -> None:
    nothing = (
        "<style>@import url(http://x);</style><metadata><script>alert(1)</script></metadata>"
        "<!-- <script> --><?x ><script>alert(1)</script>?>"
    )
    assert element(figure.replace("</svg>", f"{nothing}</svg>"), "curves", "x") == element(
        figure, "curves", "x"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<svg>",
        f"<svg {SVG}/>",
        f'<svg {SVG} viewBox="0 0 1 1"><g/>',
        f'<svg {SVG} viewBox="url(x)"/>',
        f'<!DOCTYPE svg [<!ENTITY a "b">]><svg {SVG} viewBox="0 0 1 1"><title>&a;</title></svg>',
        f'<svg {SVG} viewBox="0 0 1 1">' + "<g>" * 100_000,
        f'<svg {SVG} viewBox="0 0 1 1">\udcff</svg>',
    ],
)
def test_what_is_no_figure_is_none(text: str) -> None:
    assert element(text, "curves", "x") is None


def test_a_right_signature_makes_no_figure_trusted(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    look_into(run, ("curves",))
    file = run.analysis / "curves.svg"
    refresh = '<meta http-equiv="refresh" content="0;url=http://x.example"/>'
    file.write_text(signed(read_markup(file).replace("</svg>", f"{refresh}</svg>")))
    page = mast.report(run.path).read_text()
    assert "x.example" not in page
    assert "How the run went" in page
    assert f"{file} is not what" in page
