"""Studies: variants of a run are retrained to answer a question; one file and one row each.

They return tables and figures, as analyses do.
"""

from mast.analyses import ANALYSES
from mast.core.registry import Entry
from paper.studies.epochs import Epochs
from paper.studies.leave_one_out import LeaveOneOut
from paper.studies.study import Study as Study

STUDIES: dict[str, Entry[Study]] = {
    "leave_one_out": Entry(
        "Which operators each task needs, by training without them", LeaveOneOut
    ),
    "epochs": Entry("What longer training adds", Epochs),
}


def register() -> None:
    """Add them to the analyses that a page shows."""
    ANALYSES.update(STUDIES)
