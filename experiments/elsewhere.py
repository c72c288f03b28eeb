"""Does the lead in `fair` hold under other conditions? On validation images.

MAST-C and its controls, each with the rate and the weight that `fair` tests: under strong color
operators (any hue, 40 % gray), with fifteen operators, and with four times the images and steps
(10,000 of CIFAR-10's are left to validate on). Under the strong ones rule 5's choice trailed on
seed 0; so larger weights and a lower rate were planned for it and its controls; then, as its heads
never learned the hue, heads that read shallower depths, where the hue is from the start (rule 6).
With fifteen operators MAST-C trailed SimCLR + AugSelf on seed 0; as its heads predict everything
twice, half the weight was tried.
"""

from collections.abc import Sequence
from dataclasses import replace

from experiments.candidates import CANDIDATES_ON_VALIDATION
from experiments.fair import DECIDING
from experiments.small import VIEWS, Row, Small


def rows(
    name: str,
    keys: Sequence[str] = DECIDING,
    views: str = VIEWS,
    weights: Sequence[float] = (1,),
    shares: Sequence[float] = (1,),
) -> dict[str, Row]:
    """These rows of `candidates`; run names begin with `name`.

    Args:
        name: Of the experiment.
        keys: Of the rows.
        views: Of all runs.
        weights: Of the predictions, one row each.
        shares: Of the rates of `candidates`, to be tried.
    """
    found: dict[str, Row] = {}
    for key in keys:
        row = CANDIDATES_ON_VALIDATION.rows[key]
        for weight in weights:
            own = "" if weight == 1 else f"_{weight:g}"
            objective = {**row.changes["objective"], "prediction": {"weight": weight}}
            found[f"{name}_{key}{own}"] = row._replace(
                title=row.title
                if weight == 1
                else f"{row.title.removesuffix(' (ours)')}, weight {weight:g}",
                changes={"objective": objective, "views": views},
                rates=tuple(share * row.rates[-1] for share in shares),
            )
    return found


def under(name: str, title: str, rows: dict[str, Row], times: int = 1) -> Small:
    """An experiment with these rows, and `times` the images."""
    return replace(
        CANDIDATES_ON_VALIDATION,
        rows=rows,
        count=times * CANDIDATES_ON_VALIDATION.count,
        results=name,
        precision="bfloat16",  # faster than float32 on a CPU with AMX, slower without
        title=title,
        baseline=f"{name}_{DECIDING[-1]}",
        about=(),
    )


STRONG = "mast5_strong"
TRIED = ("contrast_representation_double", *DECIDING[-2:])
DEEP = ("contrast_double", *DECIDING[:2], "vicreg_everywhere_double")
ELSEWHERE = {
    "strong": under(
        "strong",
        "strong color operators",
        rows("strong", TRIED, STRONG, weights=(1, 2, 4), shares=(1 / 3, 1))
        | rows("strong", DEEP, STRONG),
    ),
    "fifteen": under(
        "fifteen",
        "fifteen operators",
        rows("fifteen", views="mast15") | rows("fifteen", DECIDING[:1], "mast15", (0.5,)),
    ),
    "long": under("long", "four times the images", rows("long"), times=4),
}
