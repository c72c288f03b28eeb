"""The page of found images: it stands alone, and what it is told is text."""

import re
from base64 import b64decode
from dataclasses import replace
from html import unescape
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from pages import NASTY, Page
from PIL import Image
from tiny_evaluation import tiny_set

from mast.page import GalleryRow, Item, write_gallery


def page_of(file: Path, rows: list[GalleryRow]) -> Page:
    write_gallery(file, NASTY, f"What {NASTY} is", rows)
    return Page(file.read_text())


def test_it_loads_nothing_and_escapes_names(tmp_path: Path) -> None:
    canvases = replace(tiny_set(2), identifiers=(NASTY, "caf\udce9.jpg", *(NASTY,) * 4))
    rows = [GalleryRow(NASTY, [Item(canvases, 0, NASTY, is_query=True), Item(canvases, 1, "0.9")])]
    page = page_of(tmp_path / "page.html", rows)
    assert len(page.found["src"]) == 2
    assert "script" not in page.tags
    assert page.text.count(NASTY) >= 5
    assert "caf" in page.text  # though the rest is no Unicode
    text = (tmp_path / "page.html").read_text()
    assert "<b>" not in text
    assert not re.search(r"https?:|url\(|@import", text)
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri" in unescape(
        text
    )
    assert "script-src" not in text


def test_images_keep_their_shape(tmp_path: Path) -> None:
    aspects = np.array([2.0, 0.25, 1.0, 1.0, 1.0, 1.0], np.float32)
    canvases = replace(tiny_set(2), aspect_N=aspects)
    items = [Item(canvases, at, "") for at in range(3)]
    page = page_of(tmp_path / "page.html", [GalleryRow("a", items)])
    images = [Image.open(BytesIO(b64decode(source.split(",")[1]))) for source in page.found["src"]]
    assert [image.size for image in images] == [(16, 8), (4, 16), (16, 16)]


def test_what_is_left_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.page.gallery.ITEMS", 3)
    monkeypatch.setattr("mast.page.gallery.ROWS", 2)
    canvases = tiny_set(2)
    many = GalleryRow("many", [Item(canvases, 0, "")] * 10)
    few = GalleryRow("few", [Item(canvases, 1, "")])
    page = page_of(tmp_path / "page.html", [many, *[few] * 6])
    assert len(page.found["src"]) == 3 + 1
    assert "And 7 more images" in page.text
    assert "And 5 more rows" in page.text
    monkeypatch.setattr("mast.page.gallery.IMAGES", 2)
    page = page_of(tmp_path / "page.html", [few, many, few])
    assert len(page.found["src"]) == 2
    assert "And 9 more images" in page.text
    assert "And 1 more rows" in page.text
