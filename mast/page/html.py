"""Pages: sections of blocks in one template, which load no other files."""

import base64
import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from markupsafe import Markup, escape
from PIL import Image

from mast.core.checkpoint import write_text
from mast.core.errors import visible
from mast.core.files import as_unicode

FOLDER = Path(__file__).parent
QUALITY = 88  # of the JPEGs
SIDE = 160  # pixels of the images
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "  # the policy's beginning

# Kind of the block (a case of the template) and its content: ("note", "a text").
Block: TypeAlias = tuple[str, Any]


class Section(NamedTuple):
    """A section of a page, linked from the menu."""

    title: str
    blocks: Sequence[Block]


def write_page(out: Path, title: str, sections: Sequence[Section]) -> None:
    """Write a page of sections, without scripts."""
    style = Markup("".join((FOLDER / name).read_text("utf-8") for name in ("base.css", "page.css")))
    policy = f"{POLICY}base-uri 'none'; form-action 'none'"
    rendered(out, "page.html.jinja", title=title, sections=sections, policy=policy, style=style)


def hashed(script: str) -> str:
    """A script as a policy names it."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"sha256-{digest}"


def rendered(out: Path, template: str, **values: Any) -> None:
    """Write a page from a template of this folder."""
    from jinja2 import Environment, FileSystemLoader

    page = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    ).get_template(template)
    write_text(out, as_unicode(page.render(**values)))


def is_page(path: Path) -> bool:
    """Whether a file is a page of this program, recognized by its security policy."""
    with path.open("rb") as file:
        return f'content="{escape(POLICY)}'.encode() in file.read(1000)


def jpeg(image: Image.Image) -> str:
    """An image as a data URI."""
    content = io.BytesIO()
    image.save(content, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(content.getvalue()).decode()}"
