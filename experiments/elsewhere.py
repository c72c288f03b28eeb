"""Does the lead of `fair` last under other conditions? On validation images.

MAST and its two controls, each with the rate and the weight that `fair` tests: under strong color
operators (any hue, 40 % gray), with fifteen operators, and with four times the images and
steps (10,000 of CIFAR-10's are left to validate on). After seed 0 of the strong operators, under
which a contrast was behind, all three got larger weights and a lower rate there.
"""

from collections.abc import Sequence
from dataclasses import replace

from experiments.candidates import CANDIDATES_ON_VALIDATION
from experiments.fair import DECIDING
from experiments.small import VIEWS, Row, Small


def under(
    name: str,
    title: str,
    views: str = VIEWS,
    times: int = 1,
    weights: Sequence[float] = (1,),
    shares: Sequence[float] = (1,),
) -> Small:
    """These rows with other views or more images; names of runs begin with `name`.

    Args:
        name: Of the folder of results.
        title: Of the table.
        views: Of all runs.
        times: How many times the images.
        weights: Of the predictions; each makes a row.
        shares: Of the rates that `fair` tests, which are tried.
    """
    rows: dict[str, Row] = {}
    for key in DECIDING:
        row = CANDIDATES_ON_VALIDATION.rows[key]
        for weight in weights:
            own = "" if weight == 1 else f"_{weight:g}"
            objective = {**row.changes["objective"], "prediction": {"weight": weight}}
            rows[f"{name}_{key}{own}"] = row._replace(
                title=row.title if weight == 1 else f"{row.title}, weight {weight:g}",
                changes={"objective": objective, "views": views},
                rates=tuple(share * row.rates[0] for share in shares),
            )
    return replace(
        CANDIDATES_ON_VALIDATION,
        rows=rows,
        count=times * CANDIDATES_ON_VALIDATION.count,
        results=name,
        precision="bf16-mixed",  # 1.6 times as fast on a CPU with AMX, half as fast without
        title=title,
        baseline=f"{name}_{DECIDING[-1]}",
        about=(),
    )


ELSEWHERE = {
    "strong": under(
        "strong", "strong color operators", "mast5_strong", weights=(1, 2, 4), shares=(1 / 3, 1)
    ),
    "fifteen": under("fifteen", "fifteen operators", "mast15"),
    "long": under("long", "four times the images", times=4),
}
