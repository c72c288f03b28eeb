"""What searches find in the spaces of the runs of `forgetting`, and how far a block leads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from experiments.forgetting import DESTROYED, PROPERTY, TASKS, grouped
from mast.analyses import Grid
from mast.augment import PROPERTIES
from mast.evaluation.result import ENDS
from paper.experiment import Measured
from paper.protocols.retrieval import PRECISION, TOLD
from paper.seeds import cell

WHOLE = {"representation": "representation", "embedding": "whole embedding"}
CHOSEN = {"ignore_": "ignoring", "match_": "matching"}
# What a block has to beat: no block, without a prediction and with one that weighs the same
# (for `both` as much as its two together).
ONCE, TWICE = ("vicreg", "augself"), ("vicreg", "augself_double")
RIVALS = {"exempt": ONCE, "silent": ONCE} | dict.fromkeys(
    (
        "exempt_double", "exempt_double_2", "exempt_double_3", "exempt_double_10",
        "representation_double", "both", "both_double", "budgeted_double",
    ),
    TWICE,
)  # fmt: skip


def spaces(scores: Iterable[str], operators: Sequence[str], what: str) -> dict[str, str]:
    """The spaces of a run that concern some operators.

    Args:
        scores: Names of scores as `retrieval` has them, such as "precision_match_grayscale".
        operators: Those that destroy a property.
        what: The property, for readers.

    Returns:
        By name, such as "match_grayscale", what it is called: whole spaces first, then those that
        ignore the operators and those that match them, then what heads that tell them read. Where
        masks tell operators apart there are several of either, which are called after theirs.
    """
    names = [
        score.removeprefix(PRECISION)
        for score in scores
        if score.startswith(PRECISION) and not score.endswith(ENDS)
    ]
    found = {name: title for name, title in WHOLE.items() if name in names}
    for prefix, verb in CHOSEN.items():
        chosen = [
            name
            for name in names
            if name.startswith(prefix)
            and set(name.removeprefix(prefix).split("+")) & set(operators)
        ]
        for name in chosen:
            own = name.removeprefix(prefix).replace("_", " ").replace("+", ", ")
            found[name] = f"{verb} {what if len(chosen) == 1 else own}"
    for name in names:
        told = name.removeprefix(TOLD).split("+")
        if name.startswith(TOLD) and set(told) <= set(operators):
            heads = " and ".join(told).replace("_", " ")
            found[name] = f"head of {heads}" if len(told) == 1 else f"heads of {heads}"
    return found


def precision(result: Measured, task: str, space: str) -> float:
    """Precision at 10 of a task in a space of a run, in percent."""
    value: float = result["retrieval"][task][f"{PRECISION}{space}"]
    return value


def searches(measured: Mapping[str, Measured]) -> Grid:
    """Precision at 10 of every task: one row per factor destroyed, method and space of it."""
    rows = []
    for (factor, method), results in grouped(measured).items():
        titles = {space: title for result in results for space, title in _spaces(result).items()}
        for space, title in titles.items():
            having = [result for result in results if space in _spaces(result)]
            cells = (cell([precision(result, task, space) for result in having]) for task in TASKS)
            rows.append((factor, method, title, str(len(having)), *cells))
    return Grid(("destroyed", "method", "space", "seeds", *TASKS), tuple(rows))


@dataclass(frozen=True)
class Lead:
    """How the two spaces into which a block divides an embedding search, in one run.

    Attributes:
        factor: The factor under study, which the views destroy.
        method: The run's, of `RIVALS`.
        seed: The run's.
        block: Precision at 10 on that factor, matching it.
        best: The best on that factor of the representations and embeddings of the run and its
            rivals.
        heads: The best on that factor of what heads read of these representations; None where no
            head reads one, or none was measured.
        behind: By each other task, how far ignoring the factor is behind the best of them.
    """

    factor: str
    method: str
    seed: int
    block: float
    best: float
    heads: float | None
    behind: Mapping[str, float]

    @property
    def lead(self) -> float:
        """Of the block over the best representation or embedding, in points."""
        return self.block - self.best

    @property
    def furthest(self) -> tuple[str, float]:
        """The task on which ignoring the factor is furthest behind, and by how much."""
        return max(self.behind.items(), key=lambda item: item[1])


def block_of(result: Measured) -> tuple[str, str] | None:
    """The spaces that ignore and that match what the views destroy, if there is one of each."""
    found = [space for space in _spaces(result) if space.startswith(tuple(CHOSEN))]
    kinds = [f"{space.partition('_')[0]}_" for space in found]
    return (found[0], found[1]) if kinds == list(CHOSEN) else None


def leads(measured: Mapping[str, Measured]) -> list[Lead]:
    """The lead of each run with a block whose rivals of the same seed are there."""
    runs = {(run["destroyed"], run["method"], run["seed"]): run for run in measured.values()}
    found = []
    for (factor, method, seed), run in runs.items():
        names = {(factor, rival, seed) for rival in RIVALS.get(method, ())}
        block = block_of(run)
        if not names or block is None or not runs.keys() >= names:
            continue
        ignoring, matching = block
        compared = [run, *(runs[name] for name in names)]
        behind = {
            task: max(_measured(compared, task, WHOLE)) - precision(run, task, ignoring)
            for task in TASKS
            if task != factor
        }
        reached = precision(run, factor, matching)
        whole = max(_measured(compared, factor, WHOLE))
        reading = [
            space for other in compared for space in _spaces(other) if space.startswith(TOLD)
        ]
        heads = max(_measured(compared, factor, reading), default=None)
        found.append(Lead(factor, method, seed, reached, whole, heads, behind))
    methods = list(RIVALS)
    return sorted(
        found,
        key=lambda lead: (DESTROYED.index(lead.factor), methods.index(lead.method), lead.seed),
    )


def led(measured: Mapping[str, Measured]) -> Grid:
    """The leads as a table."""
    rows = tuple(
        (
            lead.factor, lead.method, str(lead.seed), f"{lead.block:.1f}", f"{lead.best:.1f}",
            f"{lead.lead:+.1f}", "" if lead.heads is None else f"{lead.heads:.1f}",
            f"{lead.furthest[1]:.1f} ({lead.furthest[0]})",
        )
        for lead in leads(measured)
    )  # fmt: skip
    return Grid(
        ("destroyed", "method", "seed", "matching it", "best whole space", "lead", "best heads",
         "ignoring it, furthest behind"),
        rows,
    )  # fmt: skip


def _spaces(result: Measured) -> dict[str, str]:
    operators = PROPERTIES[PROPERTY[result["destroyed"]]]
    return spaces(result["retrieval"][TASKS[0]], operators, "it")


def _measured(runs: Iterable[Measured], task: str, names: Iterable[str]) -> list[float]:
    """The precision on a task of every run in those of some spaces that it has."""
    return [
        precision(run, task, name)
        for run in runs
        for name in names
        if f"{PRECISION}{name}" in run["retrieval"][task]
    ]
