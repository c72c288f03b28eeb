"""Studies that validate the analyses, and their results."""

import json
from typing import Any

from experiments.advice_check import AdviceCheck
from experiments.small_sets import called
from experiments.uncertainty_check import UncertaintyCheck
from written.result_files import RESULTS, link_table

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


def insights(question: str) -> list[dict[str, Any]]:
    """What was measured of each run."""
    files = sorted((RESULTS / "insight").glob(f"{question}-*.json"))
    return [json.loads(file.read_text()) for file in files]
