"""What pages are made of: templates, figures as elements, and a policy of what they may load."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup, escape

from mast.core.errors import visible

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES = Path(__file__).parent

# Of SVG what matplotlib writes, and `as_svg` of it. A page gives its own style.
SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
SKIPPED = ("metadata", "style")
ELEMENTS = ("g", "defs", "path", "use", "image", "text", "tspan", "title", "clipPath", "rect")
BOX = re.compile(r"[-\d. ]+")
# Numbers, colours, names of fonts; nothing that is fetched.
VALUE = r"(?:[\w\s.,:;%'#+-]|url\(#[\w-]+\)|(?:translate|rotate|scale|matrix)\([-+\w., ]*\))*"
ATTRIBUTES = {"class": "tip", "role": "img", "tabindex": "0"} | dict.fromkeys(
    ("id", "d", "style", "transform", "clip-path", "x", "y", "width", "height"), VALUE
)
LINKS = {"use": r"#[\w-]+", "image": r"data:image/png;base64,[\w+/=\s]+"}


@functools.cache
def template(name: str) -> Template:
    """A template of this folder."""
    from jinja2 import Environment, FileSystemLoader

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(name)


def inlined(name: str) -> Markup:
    """A style sheet or a script of this folder, as it is."""
    return Markup((TEMPLATES / name).read_text("utf-8"))


def element(svg: str, name: str, label: str) -> Markup | None:
    """A figure as an element of a page, written anew of what is known to be harmless.

    An image must have no parts that can be reached; a figure with tips is a group of them.

    Args:
        svg: The figure, as `as_svg` drew it or somebody else.
        name: Begins its ids, so that they are no others' on the page.
        label: Of the element.

    Returns:
        None where it is no figure of matplotlib's, or holds what those do not.
    """
    figure = _Figure(name)
    parser = ElementTree.XMLParser(target=figure)
    try:
        parser.feed(svg[svg.find("<svg") :])  # what stands before could declare entities
        parser.close()
    except (ElementTree.ParseError, ValueError):
        return None
    role, inside = "group" if figure.tips else "img", "".join(figure.parts)
    return Markup(
        f'<svg viewBox="{figure.box}" role="{role}" aria-label="{escape(visible(label))}">'
        f"{inside}</svg>"
    )


class _Figure:
    """What a figure is made of, as a parser meets it.

    Attributes:
        parts: The markup inside of the element.
        box: What is seen of the plane.
        tips: Whether there are some.

    Raises:
        ValueError: Something in it is not allowed.
    """

    def __init__(self, name: str) -> None:
        self.parts: list[str] = []
        self.box = ""
        self.tips = False
        self._name = name
        self._open: list[str] = []
        self._skipped = 0  # elements that are open and not shown

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        kind = tag.removeprefix(SVG)
        if self._skipped or (kind in SKIPPED and self._open):
            self._skipped += 1
            return
        own = {name.replace(XLINK, "xlink:"): value for name, value in attributes.items()}
        if not self._open:
            self.box = own.get("viewBox", "")
            if kind != "svg" or not BOX.fullmatch(self.box):
                raise ValueError(f"{kind} is no figure")
        else:
            if kind not in ELEMENTS:
                raise ValueError(f"{kind} is no part of a figure")
            for name, value in own.items():
                self._check(kind, name, value)
            self.tips |= "class" in own
            text = "".join(f' {name}="{escape(value)}"' for name, value in own.items())
            self.parts.append(f"<{kind}{text}>")
        self._open.append(kind)

    def end(self, _: str) -> None:
        """An element ends."""
        if self._skipped:
            self._skipped -= 1
        elif (kind := self._open.pop()) != "svg":
            self.parts.append(f"</{kind}>")

    def data(self, text: str) -> None:
        """Text is met."""
        if not self._skipped:
            self.parts.append(escape(visible(text)))

    def _check(self, kind: str, name: str, value: str) -> None:
        allowed = LINKS.get(kind) if name == "xlink:href" else ATTRIBUTES.get(name)
        own_id = name != "id" or value.startswith(f"{self._name}-")
        if allowed is None or not re.fullmatch(allowed, value) or not own_id:
            raise ValueError(f"{kind} {name}={value[:40]} is no part of a figure")


def is_page(path: Path) -> bool:
    """Whether a file is a page of this program, by what it may load."""
    with path.open("rb") as file:
        return f'content="{escape(_OWN)}'.encode() in file.read(1000)


_OWN = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "


def policy(script: str = "") -> str:
    """What a page may load: its own style and script, and images that it holds itself."""
    own = _OWN
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        own += f"script-src 'sha256-{digest}'; "
    return f"{own}base-uri 'none'; form-action 'none'"
