"""Questions to a run: arrays first, then figures; one file and one line of `ANALYSES` each."""

from mast.analyze.advice import Advice
from mast.analyze.analysis import (
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
from mast.analyze.curves import Curves
from mast.analyze.epochs import Epochs
from mast.analyze.growth import Growth
from mast.analyze.invariance import Invariance
from mast.analyze.leave_one_out import LeaveOneOut
from mast.analyze.masks import Masks
from mast.analyze.predictions import Predictions
from mast.analyze.sensitivity import Sensitivity
from mast.analyze.subspaces import Subspaces
from mast.analyze.trials import Study
from mast.analyze.uncertainty import Uncertainty

STUDIES: dict[str, type[Study]] = {
    "leave_one_out": LeaveOneOut,
    "growth": Growth,
    "sensitivity": Sensitivity,
    "epochs": Epochs,
}
ANALYSES: dict[str, type[Analysis]] = {
    "curves": Curves,
    "masks": Masks,
    "subspaces": Subspaces,
    "invariance": Invariance,
    "advice": Advice,
    "predictions": Predictions,
    "uncertainty": Uncertainty,
    **STUDIES,
}

__all__ = [
    "ANALYSES",
    "STUDIES",
    "Analysis",
    "Arrays",
    "ChangeBy",
    "Details",
    "Gallery",
    "Grid",
    "Images",
    "Map",
    "Score",
    "Study",
    "Subject",
    "Trial",
]
