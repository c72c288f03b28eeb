"""Figures of the paper, of any run: analyses, in a file and a row each."""

from mast.analyses import ANALYSES, Analysis
from mast.core.registry import Entry
from paper.analyses.advice import Advice
from paper.analyses.invariance import Invariance
from paper.analyses.predicted_operators import PredictedOperators
from paper.analyses.predictions import Predictions
from paper.analyses.subspaces import SubspacesAnalysis
from paper.analyses.uncertainty import Uncertainty

FIGURES: dict[str, Entry[Analysis]] = {
    "advice": Entry("Which augmentations each task can afford", Advice),
    "subspaces": Entry("What lies together in each subspace", SubspacesAnalysis),
    "predicted_operators": Entry(
        "How well each space predicts what the operators did", PredictedOperators
    ),
    "invariance": Entry("What each subspace forgets", Invariance),
    "predictions": Entry("Which subspaces each task uses", Predictions),
    "uncertainty": Entry("Which images it is unsure of", Uncertainty),
}


def register() -> None:
    """Add them to those of `mast analyze`."""
    ANALYSES.update(FIGURES)
