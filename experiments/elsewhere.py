"""Does the lead in `fair` hold under other conditions? On validation images.

MAST and its two controls, each with the rate and the weight that `fair` tests: under strong color
operators (any hue, 40 % gray), with fifteen operators, and with four times the images and steps
(10,000 of CIFAR-10's are left to validate on). As the contrast trailed on seed 0 of the strong
operators, larger weights and a lower rate are planned there; and, as its heads never learned the
hue there, heads that read shallower depths, where the hue is from the start.
"""

from collections.abc import Sequence
from dataclasses import replace

from experiments.candidates import CANDIDATES_ON_VALIDATION
from experiments.fair import DECIDING
from experiments.small import VIEWS, Small


def under(
    name: str,
    title: str,
    views: str = VIEWS,
    times: int = 1,
    weights: Sequence[float] = (1,),
    shares: Sequence[float] = (1,),
    others: Sequence[str] = (),
) -> Small:
    """These rows with other views or more images; run names begin with `name`.

    Args:
        name: Of the results folder.
        title: Of the table.
        views: Of all runs.
        times: Factor on the image count.
        weights: Of the predictions, one row each.
        shares: Of `fair`'s rates, to be tried.
        others: Further rows of `candidates`, at their own weights and rates.
    """
    rows = {
        f"{name}_{key}": row._replace(changes={**row.changes, "views": views}, rates=row.rates[-1:])
        for key, row in CANDIDATES_ON_VALIDATION.rows.items()
        if key in others
    }
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
        precision="bf16-mixed",  # faster than float32 on a CPU with AMX, slower without
        title=title,
        baseline=f"{name}_{DECIDING[-1]}",
        about=(),
    )


ELSEWHERE = {
    "strong": under(
        "strong",
        "strong color operators",
        "mast5_strong",
        weights=(1, 2, 4),
        shares=(1 / 3, 1),
        others=("contrast_double", "contrast_everywhere_double"),
    ),
    "fifteen": under("fifteen", "fifteen operators", "mast15"),
    "long": under("long", "four times the images", times=4),
}
