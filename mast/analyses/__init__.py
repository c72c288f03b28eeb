"""Questions to a run: arrays first, then figures; one file and one line of `ANALYSES` each."""

from mast.analyses.analysis import Analysis as Analysis
from mast.analyses.analysis import Arrays as Arrays
from mast.analyses.analysis import ChangeBy as ChangeBy
from mast.analyses.analysis import Gallery as Gallery
from mast.analyses.analysis import Grid as Grid
from mast.analyses.analysis import Images as Images
from mast.analyses.analysis import Subject as Subject
from mast.analyses.analysis import read_arrays as read_arrays
from mast.analyses.analysis import understood as understood
from mast.analyses.curves import Curves
from mast.analyses.masks import MasksAnalysis
from mast.analyses.neighbours import Neighbours
from mast.core.registry import Entry as Entry

ANALYSES: dict[str, Entry[Analysis]] = {
    "curves": Entry("How the run went", Curves),
    "masks": Entry("Which dimensions each operator takes", MasksAnalysis),
    "neighbours": Entry("What a search finds by the invariances it chooses", Neighbours),
}
