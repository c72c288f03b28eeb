"""Questions to a run: arrays first, then figures; one file and one line of `ANALYSES` each."""

from mast.analyses.advice import Advice
from mast.analyses.analysis import (
    Analysis,
    Arrays,
    ChangeBy,
    Details,
    Gallery,
    Grid,
    Images,
    Map,
    Score,
    Subject,
    Trial,
)
from mast.analyses.curves import Curves
from mast.analyses.invariance import Invariance
from mast.analyses.masks import Masks
from mast.analyses.predictions import Predictions
from mast.analyses.subspaces import Subspaces
from mast.analyses.uncertainty import Uncertainty

ANALYSES: dict[str, type[Analysis]] = {
    "curves": Curves,
    "masks": Masks,
    "subspaces": Subspaces,
    "invariance": Invariance,
    "advice": Advice,
    "predictions": Predictions,
    "uncertainty": Uncertainty,
}

__all__ = [
    "ANALYSES",
    "Analysis",
    "Arrays",
    "ChangeBy",
    "Details",
    "Gallery",
    "Grid",
    "Images",
    "Map",
    "Score",
    "Subject",
    "Trial",
]
