"""Studies: variants of a run are retrained to answer a question; one file and one row each.

They return tables and figures, as analyses do.
"""

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from mast.analyses import ANALYSES
from mast.core.registry import Entry
from mast.studies.epochs import Epochs
from mast.studies.leave_one_out import LeaveOneOut
from mast.studies.study import Study as Study

STUDIES: dict[str, Entry[Study]] = {
    "leave_one_out": Entry(
        "Which operators each task needs, by training without them", LeaveOneOut
    ),
    "epochs": Entry("What longer training adds", Epochs),
}
# What is added to the analyses or the studies is in here, too.
QUESTIONS: Mapping[str, Entry[Any]] = ChainMap(STUDIES, ANALYSES)
