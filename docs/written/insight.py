"""The studies of whether the analyses say the truth, and what these said."""

import json
from typing import Any

from experiments.advice_check import AdviceCheck
from experiments.uncertainty_check import UncertaintyCheck
from mast.studies import STUDIES
from mast.studies.tables.printed import as_markdown
from written.result_files import RESULTS, whole

STUDIED = "cifar_mast5"
NEEDS = "needs what it destroys"  # a verdict of `mast advise`


def advice() -> str:
    """How many warnings are right; for each run the operators of each task by what they cost."""
    links = (
        f"{described(result['run'])}: {whole(f'advice-{at}', AdviceCheck().table({'': result}))}"
        for at, result in enumerate(insights("advice"), 1)
    )
    return f"{warned()} Costs by task and operator: {'; '.join(links)}."


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
    said = ", ".join(f"{task} {sum(each)} of {len(each)}" for task, each in right.items() if each)
    total = [each for of_task in right.values() for each in of_task]
    return (
        f"Of {len(total)} warnings {sum(total)} name an operator that destroys the factor: {said}."
    )


def uncertainty() -> str:
    """How often a damaged copy is ranked above its original, a column a run."""
    results = {str(at): result for at, result in enumerate(insights("uncertain"))}
    return as_markdown(UncertaintyCheck().table(results))


def studies() -> str:
    """What the studies of one run said, in words; all of them are in the result files."""
    (result,) = (each for each in insights("findings") if each["run"]["name"] == STUDIED)
    answers = "\n".join(
        f"- **{answer['title']}**: {answer['caption']}"
        for name, answer in result["analyses"].items()
        if name in STUDIES
    )
    return f"Of a run of {described(result['run'])}:\n\n{answers}"


def insights(question: str) -> list[dict[str, Any]]:
    """What was measured of each run."""
    files = sorted((RESULTS / "insight").glob(f"{question}-*.json"))
    return [json.loads(file.read_text()) for file in files]


def described(run: dict[str, Any]) -> str:
    """What a run was, in a few words."""
    mode = f" ({run['mode']})" if run["mode"] else ""
    return (
        f"{run['method']}{mode} on {run['data']}, views {run['views']}, {run['size']} pixels, "
        f"{run['epochs']} epochs"
    )
