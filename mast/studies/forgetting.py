"""Do exempt blocks keep what operators destroy? Generated images, where that is known."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from mast.analyses import Grid
from mast.augment import PROPERTIES
from mast.measure.named_sets import NamedSets
from mast.measure.result import ENDS, PRECISION
from mast.measure.sets import EvaluationData
from mast.protocols.run import EvaluationSettings, evaluate_encoder
from mast.studies.engine import StudyRun
from mast.studies.experiment import Experiment, Measured, Workplace, last_metrics
from mast.studies.seeds import cell
from mast.studies.small_runs import NARROWER

PROTOCOLS = ("linear", "retrieval")
TASKS = ("color", "orientation", "position", "shape", "texture", "sharpness")
DESTROYED = ("color", "orientation", "position", "sharpness")  # by `forget_<factor>`
PROPERTY = {factor: factor for factor in DESTROYED} | {"sharpness": "focus"}
LONGER = {"orientation": 2}  # times as many epochs: an angle is told late
HIDDEN, DIM = 512, 160
SPACES = {  # as results name them, by prefix, and as tables do
    "representation": "representation",
    "embedding": "whole embedding",
    "ignore_": "ignoring it",
    "match_": "matching it",
}


@dataclass(frozen=True)
class Contender:
    """One row of the table.

    Attributes:
        recipe: The recipe it starts from.
        objective: Fields of the objective that differ from the recipe's.
        of: The field that names the property of an image which the views destroy, if one does.
        trained: Whether it is trained at all.
        gate_lr: Peak rate of masks that are learned.
    """

    recipe: str
    objective: Mapping[str, Any] = field(default_factory=dict)
    of: str | None = None
    trained: bool = True
    gate_lr: float = 3e-4


V, M = "vicreg5_small", "mast5_small"
SHARE, WEIGHT = 0.05, 1.0  # of the dimensions that are exempt, and of a prediction
DOUBLE = {"prediction": {"weight": 2.0}}
CONTENDERS: dict[str, Contender] = {
    "untrained": Contender(V, trained=False),
    "vicreg": Contender(V),
    "augself": Contender(V, of="told"),
    "augself_double": Contender(V, DOUBLE, "told"),
    "exempt": Contender(M, of="exempt"),
    "exempt_double": Contender(M, DOUBLE, "exempt"),
    "exempt_double_2": Contender(M, DOUBLE | {"exempt_share": 0.02}, "exempt"),
    "exempt_double_3": Contender(M, DOUBLE | {"exempt_share": 0.03}, "exempt"),
    "exempt_double_10": Contender(M, DOUBLE | {"exempt_share": 0.10}, "exempt"),
    "representation_double": Contender(M, DOUBLE | {"predict_from": "representation"}, "exempt"),
    "both_double": Contender(M, DOUBLE | {"predict_from": "both"}, "exempt"),
    "silent": Contender(M, {"predict_from": "none"}, "exempt"),
    "budgeted_double": Contender(M, DOUBLE | {"masks": "budgeted"}, "exempt", gate_lr=1e-2),
    "guarded": Contender("mast5_guarded_small"),
}
# What a block has to beat: no block, without a prediction and with one that weighs the same.
RIVALS = {"exempt": ("vicreg", "augself"), "exempt_double": ("vicreg", "augself_double")}


@final
@dataclass(frozen=True)
class Forgetting(Experiment):
    """Views that destroy a factor × methods × seeds, on `toys`, whose six factors are tasks.

    Each run has a linear probe of its representation, and retrieval in every space that it has.
    Names are `<factor destroyed>/<method>-<seed>`. Sets are generated: none are needed.
    """

    results: ClassVar[str] = "forgetting"
    seeded: ClassVar[bool] = True

    contenders: Mapping[str, Contender] = field(default_factory=lambda: CONTENDERS)
    factors: tuple[str, ...] = DESTROYED
    images: int = 8192
    epochs: int = 5
    encoder: Mapping[str, Any] = field(default_factory=lambda: NARROWER)
    settings: EvaluationSettings | None = None

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        """See `Experiment.plan`."""
        return [
            self._run(workplace, factor, name, seed)
            for seed in seeds
            for factor in self.factors
            for name in self.contenders
        ]

    def _run(self, workplace: Workplace, factor: str, name: str, seed: int) -> StudyRun:
        contender = self.contenders[name]
        trial = f"{factor}-{name}-{seed}"
        epochs = self._epochs(factor)
        told = {} if contender.of is None else {contender.of: [PROPERTY[factor]]}
        common: dict[str, Any] = {
            "projector": {"hidden": HIDDEN, "dim": DIM},
            "prediction": {"weight": WEIGHT},
        }
        if contender.of == "exempt":
            common["exempt_share"] = SHARE
        config = workplace.configure(
            trial,
            contender.recipe,
            f"toys@train:{self.images}",
            recipe=trial,
            size=32,
            views=f"forget_{factor}",
            objective={**common, **told, **contender.objective},
            encoder=dict(self.encoder),
            optimizer={"gate_lr": contender.gate_lr},
            epochs=epochs,
            seed=seed,
            score_every=epochs,
        )
        changes = {"destroyed": factor, "method": name}
        return StudyRun(f"{factor}/{name}-{seed}", changes, config, seed, contender.trained)

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        """See `Experiment.measure`: by task, linear accuracy and precision in every space."""
        sets = self._sets()
        if run.trained:
            protocols = {} if self.settings is None else self.settings.protocols
            results = workplace.verbs.evaluate(
                run.folder.path, sets, PROTOCOLS, settings=protocols, device=workplace.device
            )
        else:
            encoder = workplace.encoder(run)
            data = sets.open(EvaluationData, encoder.size)
            assert isinstance(data, EvaluationData)
            results = evaluate_encoder(encoder, data, PROTOCOLS, self.settings)
        linear, retrieval = (result.targets for result in results)
        return {
            **run.changes,
            "seed": run.seed,
            "linear": {task: linear[task].values["top1"] for task in TASKS},
            "retrieval": {task: retrieval[task].values for task in TASKS},
            "last_metrics": last_metrics(run.folder) if run.trained else {},
            "images": self.images,
            "epochs": self._epochs(run.changes["destroyed"]),
        }

    def _epochs(self, factor: str) -> int:
        return self.epochs * LONGER.get(factor, 1)

    def _sets(self) -> NamedSets:
        """Half of the training images are enough for probes."""
        few = self.images // 4
        return NamedSets(
            train=f"toys@train:{2 * few}", val=f"toys@val:{few}", test=f"toys@test:{few}"
        )

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """See `Experiment.table`: linear accuracy, one row per factor destroyed and method."""
        rows = tuple(
            (
                factor, method, str(len(results)),
                *(cell([result["linear"][task] for result in results]) for task in TASKS),
                cell([statistics.fmean(result["linear"].values()) for result in results]),
            )
            for (factor, method), results in _grouped(measured).items()
        )  # fmt: skip
        return Grid(("destroyed", "method", "seeds", *TASKS, "mean"), rows)


def searches(measured: Mapping[str, Measured]) -> Grid:
    """Precision at 10 of every task: one row per factor destroyed, method and space of it."""
    rows = []
    for (factor, method), results in _grouped(measured).items():
        for prefix, title in SPACES.items():
            found = [[precision(result, task, prefix) for result in results] for task in TASKS]
            if found[0][0] is not None:
                rows.append((factor, method, title, str(len(results)), *map(cell, found)))
    return Grid(("destroyed", "method", "space", "seeds", *TASKS), tuple(rows))


@dataclass(frozen=True)
class Lead:
    """How the two spaces that a block divides an embedding into search, in one run.

    Attributes:
        factor: What the views destroy.
        method: The run's, of `RIVALS`.
        seed: The run's.
        block: Precision at 10 on that factor, matching it.
        best: The best of the rivals' representations and embeddings on that factor.
        behind: By task of the others, how far ignoring it is behind the best of all
            representations and embeddings, the run's own among them.
    """

    factor: str
    method: str
    seed: int
    block: float
    best: float
    behind: Mapping[str, float]

    @property
    def lead(self) -> float:
        """Of the block over the best of the rivals, in points."""
        return self.block - self.best

    @property
    def furthest(self) -> tuple[str, float]:
        """The task on which ignoring it is furthest behind, and by how much."""
        return max(self.behind.items(), key=lambda item: item[1])


def leads(measured: Mapping[str, Measured]) -> list[Lead]:
    """The lead of each run with a block over the rivals of its seed; see `RIVALS`."""
    runs = {(run["destroyed"], run["method"], run["seed"]): run for run in measured.values()}
    found = []
    for (factor, method, seed), run in runs.items():
        names = [(factor, rival, seed) for rival in RIVALS.get(method, ())]
        block = precision(run, factor, "match_")
        if not names or block is None or not runs.keys() >= set(names):
            continue
        rivals = [runs[name] for name in names]
        behind = {
            task: _best([*rivals, run], task) - (precision(run, task, "ignore_") or 0.0)
            for task in TASKS
            if task != factor
        }
        found.append(Lead(factor, method, seed, block, _best(rivals, factor), behind))
    return sorted(found, key=lambda lead: (DESTROYED.index(lead.factor), lead.method, lead.seed))


def _best(runs: Sequence[Measured], task: str) -> float:
    """The best precision of whole spaces on a task."""
    return max(
        precision(run, task, space) or 0.0
        for run in runs
        for space in ("representation", "embedding")
    )


def led(measured: Mapping[str, Measured]) -> Grid:
    """The leads as a table."""
    rows = tuple(
        (
            lead.factor, lead.method, str(lead.seed), f"{lead.block:.1f}", f"{lead.best:.1f}",
            f"{lead.lead:+.1f}", f"{lead.furthest[1]:.1f} ({lead.furthest[0]})",
        )
        for lead in leads(measured)
    )  # fmt: skip
    return Grid(
        ("destroyed", "method", "seed", "matching it", "best other", "lead",
         "ignoring it, furthest behind"),
        rows,
    )  # fmt: skip


def _grouped(measured: Mapping[str, Measured]) -> dict[tuple[str, str], list[Measured]]:
    """Results of all seeds, by factor and method, in the order of both."""
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for result in measured.values():
        groups[result["destroyed"], result["method"]].append(result)
    methods = list(CONTENDERS)
    return dict(
        sorted(groups.items(), key=lambda g: (DESTROYED.index(g[0][0]), methods.index(g[0][1])))
    )


def precision(result: Measured, task: str, space: str) -> float | None:
    """Precision at 10 of a task in a space of a run, `SPACES`; "it" is what the views destroy.

    Returns:
        In percent; None where the run has no such space, or several.
    """
    values: dict[str, float] = result["retrieval"][task]
    if f"{PRECISION}{space}" in values:
        return values[f"{PRECISION}{space}"]
    operators = PROPERTIES[PROPERTY[result["destroyed"]]]
    found = [
        value
        for name, value in values.items()
        if name.startswith(f"{PRECISION}{space}")
        and not name.endswith(ENDS)
        and set(name.removeprefix(f"{PRECISION}{space}").split("+")) & set(operators)
    ]
    return found[0] if len(found) == 1 else None
