"""Self-contained HTML pages: of a run, from the files in its folder alone, and of found images."""

from mast.page.gallery import Item, Row, write_gallery
from mast.page.page import write_page

__all__ = ["Item", "Row", "write_gallery", "write_page"]
