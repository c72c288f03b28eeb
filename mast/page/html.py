"""What pages are made of: templates, figures as elements, and a policy of what they may load."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from markupsafe import Markup, escape
from PIL import Image

from mast.core.checkpoint import write_text
from mast.core.errors import UserError, visible
from mast.core.files import as_unicode

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES = Path(__file__).parent
LIMIT = 10_000_000  # bytes: a page can still be sent by mail
QUALITY = 88  # of the JPEGs
SIDES = (96, 48, 24)  # pixels of the images, the next where the page would be too large

# Of SVG what matplotlib writes, and `as_svg` of it. A page gives its own style.
SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
SKIPPED = ("metadata", "style")
ELEMENTS = ("g", "defs", "path", "use", "image", "text", "tspan", "title", "clipPath", "rect")
_OWN = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "  # begins the policy
BOX = re.compile(r"[-\d. ]+")
# Numbers, colors, names of fonts; nothing that is fetched.
VALUE = r"(?:[\w\s.,:;%'#+-]|url\(#[\w-]+\)|(?:translate|rotate|scale|matrix)\([-+\w., ]*\))*"
ATTRIBUTES = {"class": "tip", "role": "img", "tabindex": "0"} | dict.fromkeys(
    ("id", "d", "style", "transform", "clip-path", "x", "y", "width", "height"), VALUE
)
LINKS = {"use": r"#[\w-]+", "image": r"data:image/png;base64,[\w+/=\s]+"}


def write_fitting(
    out: Path,
    name: str,
    script: str | None,
    page: Callable[[int], Mapping[str, Any]],
    what: str,
    advice: str,
) -> None:
    """Write a page with images as large as its size allows.

    Args:
        out: The page.
        name: Of its template.
        script: Of this folder; None: the page has none.
        page: What the template shows, with images of so many pixels.
        what: What it is called in an error, if it is too large with the smallest images.
        advice: How to make it smaller.
    """
    code = "" if script is None else _inlined(script)
    own = {"style": _inlined("page.css"), "script": code, "policy": _policy(code)}
    for side in SIDES:
        text = as_unicode(_template(name).render(page={**page(side), **own}))
        size = len(text.encode())
        if size < LIMIT:
            write_text(out, text)
            return
    raise UserError(
        f"{what} would have {size / 1e6:.0f} MB and the limit is {LIMIT / 1e6:.0f}; {advice}"
    )


@functools.cache
def _template(name: str) -> Template:
    from jinja2 import Environment, FileSystemLoader

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(name)


def _inlined(name: str) -> Markup:
    return Markup((TEMPLATES / name).read_text("utf-8"))


def element(svg: str, name: str, label: str) -> Markup | None:
    """A figure as an element of a page, written anew of parts that are known to be harmless.

    An image must have no parts that can be reached; a figure with tips is a group of them.

    Args:
        svg: The figure; None is returned unless matplotlib could have drawn it.
        name: Begins its ids, so that they are no others' on the page.
        label: Of the element.
    """
    try:
        # What stands before it could declare entities.
        root = ElementTree.fromstring(svg[svg.find("<svg") :])
        inside = _markup(root, name)
    except (ElementTree.ParseError, ValueError, RecursionError):
        return None
    box = root.get("viewBox", "")
    if root.tag != f"{SVG}svg" or not BOX.fullmatch(box):
        return None
    role = "group" if ' class="tip"' in inside else "img"
    return Markup(
        f'<svg viewBox="{box}" role="{role}" aria-label="{escape(visible(label))}">{inside}</svg>'
    )


def _markup(parent: ElementTree.Element, figure: str) -> str:
    """The markup inside an element; a ValueError where something is no part of a figure."""
    parts: list[str] = [escape(visible(parent.text or ""))]
    for child in parent:
        kind = child.tag.removeprefix(SVG)
        if kind not in SKIPPED:
            if kind not in ELEMENTS:
                raise ValueError(f"{kind} is no part of a figure")
            text = ""
            for attribute, value in child.items():
                name = attribute.replace(XLINK, "xlink:")
                allowed = LINKS.get(kind) if name == "xlink:href" else ATTRIBUTES.get(name)
                own_id = name != "id" or value.startswith(f"{figure}-")
                if allowed is None or not re.fullmatch(allowed, value) or not own_id:
                    raise ValueError(f"{kind} {name}={value[:40]} is no part of a figure")
                text += f' {name}="{escape(value)}"'
            parts.append(f"<{kind}{text}>{_markup(child, figure)}</{kind}>")
        parts.append(escape(visible(child.tail or "")))
    return "".join(parts)


def is_page(path: Path) -> bool:
    """Whether a file is a page of this program, by what it may load."""
    with path.open("rb") as file:
        return f'content="{escape(_OWN)}'.encode() in file.read(1000)


def _policy(script: str) -> str:
    """What a page may load: its own style and script, and images that it holds itself."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"script-src 'sha256-{digest}'; " if script else ""
    return f"{_OWN}{allowed}base-uri 'none'; form-action 'none'"


class Picture(NamedTuple):
    """One image of a page."""

    source: str  # its data URI
    caption: str


def jpeg(image: Image.Image) -> str:
    """An image as a data URI."""
    content = io.BytesIO()
    image.save(content, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"
