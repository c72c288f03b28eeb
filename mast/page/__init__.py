"""The one self-contained page of a run, from the files in its folder alone."""

from mast.page.page import write_page

__all__ = ["write_page"]
