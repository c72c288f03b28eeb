"""The tables of the paper."""

from collections.abc import Mapping

from mast.core.errors import UserError, unknown
from mast.studies.tables.experiment import TableExperiment, assumed, costs
from mast.studies.tables.imagenet import FIGURE4B, TABLE1, TABLE2, TABLE5, TABLE8, TABLE10
from mast.studies.tables.imagenet100 import TABLE3, TABLE4, TABLE9
from mast.studies.tables.paper_table import SCALES, PaperTable, ScaleName
from mast.studies.tables.reproduction import Reproduction
from mast.studies.tables.smaller_sets import FIGURE8, TABLE6, TABLE7

TABLES: Mapping[str, PaperTable] = {
    "table1": TABLE1,
    "table2": TABLE2,
    "table3": TABLE3,
    "table4": TABLE4,
    "table5": TABLE5,
    "table6": TABLE6,
    "table7": TABLE7,
    "table8": TABLE8,
    "table9": TABLE9,
    "table10": TABLE10,
    "figure4b": FIGURE4B,
    "figure8": FIGURE8,
}


def experiment(name: str, scale: ScaleName = "small", epochs: int | None = None) -> Reproduction:
    """What trains and measures a table.

    Args:
        name: One of `TABLES`.
        scale: A key of `SCALES`.
        epochs: Of runs with the table's full length, in place of the scale's.

    Raises:
        UserError: No such table or scale, or no epochs.
    """
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
