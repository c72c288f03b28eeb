"""The tables of the paper."""

from mast.core.errors import UserError, unknown
from mast.studies.tables.paper import SCALES, TABLES, PaperTable, ScaleName
from mast.studies.tables.reproduction import Reproduction, TableExperiment, assumed, costs


def experiment(name: str, scale: ScaleName = "small", epochs: int | None = None) -> Reproduction:
    """What trains and measures a table, with `epochs` for runs with the table's full length."""
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if epochs is not None and epochs < 1:
        raise UserError(f"epochs must be 1 or more, got {epochs}")
    return Reproduction(name, TABLES[name], scale, epochs)


__all__ = [
    "SCALES",
    "TABLES",
    "PaperTable",
    "Reproduction",
    "ScaleName",
    "TableExperiment",
    "assumed",
    "costs",
    "experiment",
]
