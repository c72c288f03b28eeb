"""The tables of the paper."""

from mast.core.errors import UserError, unknown
from paper.tables.paper import SCALES as SCALES
from paper.tables.paper import TABLES as TABLES
from paper.tables.paper import PaperTable as PaperTable
from paper.tables.paper import ScaleName as ScaleName
from paper.tables.reproduction import Reproduction as Reproduction
from paper.tables.reproduction import TableExperiment as TableExperiment
from paper.tables.reproduction import assumed as assumed
from paper.tables.reproduction import costs as costs


def experiment(name: str, scale: ScaleName = "small", epochs: int | None = None) -> Reproduction:
    """What trains and measures a table, with `epochs` for runs with the table's full length."""
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    if epochs is not None and epochs < 1:
        raise UserError(f"epochs must be 1 or more, got {epochs}")
    return Reproduction(name, TABLES[name], scale, epochs)
