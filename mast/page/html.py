"""What pages are made of: templates, figures as elements, and a policy of what they may load."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES = Path(__file__).parent


@functools.cache
def template(name: str) -> Template:
    """A template of this folder."""
    from jinja2 import Environment, FileSystemLoader

    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template(name)


def inlined(name: str) -> Markup:
    """A style sheet or a script of this folder, as it is."""
    return Markup((TEMPLATES / name).read_text("utf-8"))


def element(svg: str, label: str) -> Markup | None:
    """A figure as an element: what only a file needs is left out, and a label is added.

    An image must have no parts that can be reached; a figure with tips is a group of them.

    Args:
        svg: The figure.
        label: Of the element.

    Returns:
        None where the figure is damaged.
    """
    role = "group" if 'class="tip"' in svg else "img"
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.S)
    box = re.search(r'viewBox="[^"]*"', svg)
    if box is None or "<svg" not in svg or not svg.rstrip().endswith("</svg>"):
        return None
    inside = svg[svg.index(">", svg.index("<svg")) + 1 :]
    return Markup(f'<svg {box[0]} role="{role}" aria-label="{escape(label)}">{inside}')


def is_page(path: Path) -> bool:
    """Whether a file is a page of this program, by what it may load."""
    with path.open("rb") as file:
        return f'content="{escape(_OWN)}'.encode() in file.read(1000)


_OWN = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "


def policy(script: str = "", more: str = "") -> str:
    """What a page may load: its own style and script, images that it holds itself, and `more`."""
    own = _OWN
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        own += f"script-src 'sha256-{digest}'; "
    return f"{own}base-uri 'none'; form-action 'none'{more}"
