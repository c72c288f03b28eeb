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
    Pairs,
    Score,
    Subject,
    Trial,
    read_arrays,
    understood,
)
from mast.analyses.curves import Curves
from mast.analyses.invariance import Invariance
from mast.analyses.masks import MasksAnalysis
from mast.analyses.neighbours import Neighbours
from mast.analyses.predicted_operators import PredictedOperators
from mast.analyses.predictions import Predictions
from mast.analyses.subspaces import SubspacesAnalysis
from mast.analyses.uncertainty import Uncertainty
from mast.core.registry import Entry

ANALYSES: dict[str, Entry[Analysis]] = {
    "advice": Entry("Which augmentations each task can afford", Advice),
    "curves": Entry("How the run went", Curves),
    "masks": Entry("Which dimensions each operator takes", MasksAnalysis),
    "subspaces": Entry("What lies together in each subspace", SubspacesAnalysis),
    "neighbours": Entry("What a search finds by the invariances it chooses", Neighbours),
    "predicted_operators": Entry(
        "How well each space predicts what the operators did", PredictedOperators
    ),
    "invariance": Entry("What each subspace forgets", Invariance),
    "predictions": Entry("Which subspaces each task uses", Predictions),
    "uncertainty": Entry("Which images it is unsure of", Uncertainty),
}

__all__ = [
    "ANALYSES",
    "Analysis",
    "Arrays",
    "ChangeBy",
    "Details",
    "Entry",
    "Gallery",
    "Grid",
    "Images",
    "Map",
    "Pairs",
    "Score",
    "Subject",
    "Trial",
    "read_arrays",
    "understood",
]
