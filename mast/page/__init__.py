"""Self-contained pages: of a run, finished or live, from its files alone, and of found images."""

from mast.page.gallery import Item, Row, thumbnail, write_gallery
from mast.page.html import is_page
from mast.page.live import LivePage
from mast.page.page import write_page
from mast.page.serve import LocalServer

__all__ = [
    "Item",
    "LivePage",
    "LocalServer",
    "Row",
    "is_page",
    "thumbnail",
    "write_gallery",
    "write_page",
]
