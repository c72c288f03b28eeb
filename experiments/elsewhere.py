"""Does the lead of `fair` last under other conditions? On validation images, rates as they are.

MAST and its two controls, each with the rate and the weight that `fair` tests: under strong color
operators (any hue, 40 % gray), with fifteen operators, and with four times the images and
steps (10,000 of CIFAR-10's are left to validate on). After seed 0 of the strong operators, under
which a contrast was behind, all three got larger weights there.
"""

from collections.abc import Sequence
from dataclasses import replace

from experiments.candidates import CANDIDATES_ON_VALIDATION
from experiments.fair import DECIDING
from experiments.small import VIEWS, Row, Small


def weighing(row: Row, weight: float, views: str) -> Row:
    """A row with another weight of predictions than 1, under some views."""
    objective = {**row.changes["objective"], "prediction": {"weight": weight}}
    title = row.title if weight == 1 else f"{row.title}, weight {weight:g}"
    return row._replace(title=title, changes={"objective": objective, "views": views})


def under(
    name: str, title: str, views: str = VIEWS, times: int = 1, weights: Sequence[float] = (1,)
) -> Small:
    """These rows with other views or more images; names of runs begin with `name`."""
    rows = CANDIDATES_ON_VALIDATION.rows
    return replace(
        CANDIDATES_ON_VALIDATION,
        rows={
            f"{name}_{key}" + ("" if weight == 1 else f"_{weight:g}"): weighing(
                rows[key], weight, views
            )
            for key in DECIDING
            for weight in weights
        },
        count=times * CANDIDATES_ON_VALIDATION.count,
        results=name,
        precision="bf16-mixed",  # 1.6 times as fast on a CPU with AMX, half as fast without
        title=title,
        baseline=f"{name}_{DECIDING[-1]}",
        about=(),
    )


ELSEWHERE = {
    "strong": under("strong", "strong color operators", "mast5_strong", weights=(1, 2, 4, 8)),
    "fifteen": under("fifteen", "fifteen operators", "mast15"),
    "long": under("long", "four times the images", times=4),
}
