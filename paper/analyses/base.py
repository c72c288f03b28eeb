"""What the figures of the paper share: the command that makes them."""

from typing import ClassVar

from mast.analyses import Analysis


class PaperAnalysis(Analysis):
    """An analysis of `python -m paper analyze`."""

    command: ClassVar[str] = "python -m paper analyze {run} --data SET --analyses {name}"
