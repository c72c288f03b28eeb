"""The studies of whether the analyses say the truth, and what these said."""

import json
from typing import Any

from experiments.advice_check import AdviceCheck
from experiments.small_sets import called
from experiments.uncertainty_check import UncertaintyCheck
from written.result_files import RESULTS, link_table

STUDIED = "cifar_mast5"
NEEDS = "needs what it destroys"  # a verdict of `python -m paper advise`


def advice() -> str:
    """How many warnings are right; for each run the operators of each task by what they cost."""
    links = (
        link_table(f"advice-{at}", AdviceCheck().table({"": result}), called(result["run"]))
        for at, result in enumerate(insights("advice"), 1)
    )
    return f"{warned()} Accuracy losses by task and operator: {', '.join(links)}."


def warned() -> str:
    """How many of the warnings are right, by how the images are drawn."""
    right: dict[str, list[bool]] = {}
    for result in insights("advice"):
        for task, found in result["tasks"].items():
            right.setdefault(task, []).extend(
                row["operator"] in found["destroyed_by"]
                for row in found["ranking"]
                if row["verdict"] == NEEDS
            )
    by_task = ", ".join(
        f"{task} {sum(each)} of {len(each)}" for task, each in right.items() if each
    )
    total = [each for of_task in right.values() for each in of_task]
    return (
        f"{sum(total)} of {len(total)} warnings are right: the operator destroys the factor "
        f"({by_task})."
    )


def uncertainty() -> str:
    """How often a damaged copy is ranked above its original, a column per run."""
    results = {str(at): result for at, result in enumerate(insights("uncertain"))}
    return f"{link_table('uncertainty', UncertaintyCheck().table(results), 'All rows')}."


def studies() -> str:
    """What the studies of one run found."""
    (result,) = (each for each in insights("findings") if each["run"]["name"] == STUDIED)
    better, unsure, rows = [], [], result["analyses"]["leave_one_out"]["rows"]
    for _, operator, change, low, high, verdict in rows:
        clear = verdict not in ("is indifferent to it", "is not known yet")
        cell = f"{operator} {change:+.1f} [{low:+.1f}, {high:+.1f}]"
        (better if clear else unsure).append(cell)
    length = result["analyses"]["epochs"]["rows"]
    most = max(row[2] for row in length)
    lengths = " and ".join(
        f"{method} {accuracy:.1f} ± {margin:.1f} %"
        for _, method, epochs, accuracy, margin in length
        if epochs == most
    )
    return (
        f"{described(result['run'])}:\n\n"
        f"- `leave_one_out`, change in top-1 on {rows[0][0]} in points, without "
        f"{', '.join(better) or 'any operator'}; not significant: {', '.join(unsure) or 'none'}.\n"
        f"- `epochs`, top-1 after {most} epochs: {lengths}."
    )


def insights(question: str) -> list[dict[str, Any]]:
    """What was measured of each run."""
    files = sorted((RESULTS / "insight").glob(f"{question}-*.json"))
    return [json.loads(file.read_text()) for file in files]


def described(run: dict[str, Any]) -> str:
    """What a run was, in a few words."""
    return (
        f"{called(run)} on {run['data']}, views {run['views']}, {run['size']} pixels, "
        f"{run['epochs']} epochs"
    )
