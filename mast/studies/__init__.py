"""Studies: runs = base × changes × seeds, measured and tabled; one file and one row each.

Studies of a run retrain variants of it to answer a question, and their answers are drawn as those
of analyses are. Experiments start from recipes and write result files.
"""

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from mast.analyses import ANALYSES
from mast.core.registry import Entry
from mast.studies.advice_check import AdviceCheck
from mast.studies.detectors import Detectors
from mast.studies.does_it_help import DoesItHelp
from mast.studies.epochs import Epochs
from mast.studies.experiment import Experiment, Verbs, Workplace
from mast.studies.findings import Findings
from mast.studies.flowers import Flowers
from mast.studies.forgetting import Forgetting
from mast.studies.growth import Growth
from mast.studies.leave_one_out import LeaveOneOut
from mast.studies.protocols import Protocols
from mast.studies.sensitivity import Sensitivity
from mast.studies.starts import Starts
from mast.studies.study import Study
from mast.studies.uncertainty_check import UncertaintyCheck

OF_A_RUN: dict[str, Entry[Study]] = {
    "leave_one_out": Entry(
        "Which operators each task needs, by training without them", LeaveOneOut
    ),
    "growth": Entry("What each further operator adds", Growth),
    "sensitivity": Entry("How much the coefficients of the loss matter", Sensitivity),
    "epochs": Entry("What longer training adds", Epochs),
}
EXPERIMENTS: dict[str, Entry[Experiment]] = {
    "does_it_help": Entry("Does it help? MAST beside VICReg at equal budgets", DoesItHelp),
    "forgetting": Entry("Do exempt blocks keep what operators destroy?", Forgetting),
    "flowers": Entry("Real photos: Flowers-17 beside the untrained encoder", Flowers),
    "starts": Entry("What is a start from weights worth?", Starts),
    "protocols": Entry("Do the probes agree?", Protocols),
    "detectors": Entry("Do the detectors learn?", Detectors),
    "advice_check": Entry("Is the advice right where the truth is known?", AdviceCheck),
    "uncertainty_check": Entry("Does the uncertainty find damaged copies?", UncertaintyCheck),
    "findings": Entry("What the analyses and studies of small runs say", Findings),
}
# Both kinds, and all analyses with the studies of a run: what is added to one is in here too.
STUDIES: Mapping[str, Entry[Any]] = ChainMap(EXPERIMENTS, OF_A_RUN)
QUESTIONS: Mapping[str, Entry[Any]] = ChainMap(OF_A_RUN, ANALYSES)

__all__ = [
    "EXPERIMENTS",
    "OF_A_RUN",
    "QUESTIONS",
    "STUDIES",
    "Entry",
    "Epochs",
    "Experiment",
    "Growth",
    "LeaveOneOut",
    "Sensitivity",
    "Study",
    "Verbs",
    "Workplace",
]
