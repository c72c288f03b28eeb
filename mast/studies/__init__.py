"""Questions that are answered by training other runs; one file and one line of `STUDIES` each."""

from collections import ChainMap
from collections.abc import Mapping

from mast.analyses import ANALYSES, Analysis
from mast.studies.epochs import Epochs
from mast.studies.growth import Growth
from mast.studies.leave_one_out import LeaveOneOut
from mast.studies.sensitivity import Sensitivity
from mast.studies.study import Study

STUDIES: dict[str, type[Study]] = {
    "leave_one_out": LeaveOneOut,
    "growth": Growth,
    "sensitivity": Sensitivity,
    "epochs": Epochs,
}
# Everything that may be asked of a run, analyses first; what is added to either is in here.
QUESTIONS: Mapping[str, type[Analysis]] = ChainMap(STUDIES, ANALYSES)  # type: ignore[arg-type]

__all__ = ["QUESTIONS", "STUDIES", "Epochs", "Growth", "LeaveOneOut", "Sensitivity", "Study"]
