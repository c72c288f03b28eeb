"""The one self-contained page of a run, from the files in its folder alone."""

from mast.report.page import report

__all__ = ["report"]
