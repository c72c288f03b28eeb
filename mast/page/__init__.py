"""Self-contained pages: of a run, from its files alone, and of found images."""

from mast.page.gallery import GalleryRow, Item, thumbnail, write_gallery
from mast.page.html import is_page
from mast.page.page import write_page

__all__ = [
    "GalleryRow",
    "Item",
    "is_page",
    "thumbnail",
    "write_gallery",
    "write_page",
]
