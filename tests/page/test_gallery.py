"""The page of photos: it stands alone, and names are text."""

import re
from base64 import b64decode
from dataclasses import replace
from html import unescape
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from pages import NASTY, Page, shown_on
from PIL import Image
from tiny_evaluation import tiny_set

from mast.page import GalleryRow, Item, View, write_gallery


def test_it_loads_nothing_and_escapes_names(tmp_path: Path) -> None:
    canvases = replace(tiny_set(2), identifiers=(NASTY, "caf\udce9.jpg", *"cdef"))
    rows = [GalleryRow(NASTY, [Item(canvases, 0, NASTY, is_query=True), Item(canvases, 1, "0.9")])]
    file = tmp_path / "page.html"
    write_gallery(file, NASTY, [View("Nearest", NASTY, rows)], lead=NASTY)
    text = file.read_text()
    assert "<b>" not in text
    assert not re.search(r"https?:|url\((?!data:image/webp)|@import", text)
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-" in (
        unescape(text)
    )
    page = Page(text)
    assert page.tags.count("script") == 3
    assert page.text.count(NASTY) == 3  # title, heading and lead; the rest is data
    data = shown_on(file)
    assert data["names"] == [NASTY, "caf\\xe9.jpg"]
    assert data["views"][0]["rows"][0]["tiles"] == [
        {"at": 0, "caption": NASTY, "query": True, "kept": None, "pair": []},
        {"at": 1, "caption": "0.9", "query": False, "kept": None, "pair": []},
    ]


def test_images_keep_their_shape(tmp_path: Path) -> None:
    aspects = np.array([2.0, 0.25, 1.0, 1.0, 1.0, 1.0], np.float32)
    canvases = replace(tiny_set(2), aspect_N=aspects)
    items = [Item(canvases, at, "") for at in range(3)]
    write_gallery(tmp_path / "page.html", "a", [View("b", "", [GalleryRow("c", items)])])
    text = (tmp_path / "page.html").read_text()
    (sheet,) = re.findall(r"url\(data:image/webp;base64,(.*?)\)", text)
    opaque = Image.open(BytesIO(b64decode(sheet))).getchannel("A")
    side = opaque.width // 10
    assert side == 16 + 2  # no larger than the images are
    for place, (width, height) in enumerate([(16, 8), (4, 16), (16, 16)]):
        box = opaque.crop((place * side, 0, place * side + side, side)).getbbox()
        assert box is not None
        assert (box[2] - box[0], box[3] - box[1]) == (width, height)


def test_what_is_left_out_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.page.gallery.ITEMS", 3)
    monkeypatch.setattr("mast.page.gallery.PHOTOS", 4)
    canvases, file = tiny_set(4), tmp_path / "page.html"
    rows = [GalleryRow("", [Item(canvases, at, "") for at in of]) for of in
            ([0, 1, 2, 3, 4], [2, 3, 0], [4, 0], [0])]  # fmt: skip
    write_gallery(file, "a", [View("b", "", rows)])
    data = shown_on(file)
    assert data["names"] == ["0.png", "1.png", "2.png", "3.png"]
    (view,) = data["views"]
    assert [[tile["at"] for tile in row["tiles"]] for row in view["rows"]] == [[0, 1, 2], [2, 3, 0]]
    assert [row["more"] for row in view["rows"]] == [2, 0]
    assert view["more"] == 2
