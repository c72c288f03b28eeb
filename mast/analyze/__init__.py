"""Questions to a run: arrays first, then figures; one file and one line of `ANALYSES` each."""

from mast.analyze.analysis import Analysis, Arrays, Subject
from mast.analyze.curves import Curves
from mast.analyze.invariance import Invariance
from mast.analyze.masks import Masks

ANALYSES: dict[str, type[Analysis]] = {
    "curves": Curves,
    "masks": Masks,
    "invariance": Invariance,
}

__all__ = ["ANALYSES", "Analysis", "Arrays", "Subject"]
