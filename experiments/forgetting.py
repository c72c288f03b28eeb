"""Do exempt blocks keep what operators destroy? Generated images, where that is known."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import mast
from experiments.small_sets import NARROWER
from mast.analyses import Grid
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.named_sets import NamedSets
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder
from paper.experiment import Experiment, Measured, Workplace, last_metrics
from paper.seeds import cell
from paper.studies.engine import StudyRun

PROTOCOLS = ("linear", "retrieval")
TASKS = ("color", "orientation", "position", "shape", "texture", "sharpness")
DESTROYED = ("color", "orientation", "position", "sharpness")  # by `forget_<factor>`
PROPERTY = {factor: factor for factor in DESTROYED} | {"sharpness": "focus"}
LONGER = {"orientation": 2}  # times as many epochs: an angle is learned late
PROJECTOR = {"hidden": 512, "dim": 160}


@dataclass(frozen=True)
class Contender:
    """One row of the table.

    Attributes:
        recipe: The recipe it starts from; empty for what cannot be trained any more.
        objective: Fields of the objective that differ from the recipe's.
        of: The field that names the factor under study as a property of the image, if one does.
        trained: Whether it is trained at all.
    """

    recipe: str
    objective: Mapping[str, Any] = field(default_factory=dict)
    of: str | None = None
    trained: bool = True


V, M = "vicreg5_small", "mast_c5_distance_small"
# Of the dimensions that are exempt, eight of 160, and of a prediction; runs of photos need less of
# both, and are longer.
SHARE, WEIGHT = 0.05, 1.0
ONCE = {"prediction": {"weight": WEIGHT}}
DOUBLE = {"prediction": {"weight": 2 * WEIGHT}}
BLOCK = {"predict_from": ("block",)}
CONTENDERS: dict[str, Contender] = {
    "untrained": Contender(V, trained=False),
    "vicreg": Contender(V),
    "augself": Contender(V, of="predicted"),
    "augself_double": Contender(V, DOUBLE, "predicted"),
    "exempt": Contender(M, BLOCK, "exempt"),
    "exempt_double": Contender(M, DOUBLE | BLOCK, "exempt"),
    "exempt_double_2": Contender(M, DOUBLE | BLOCK | {"exempt_share": 0.02}, "exempt"),
    "exempt_double_3": Contender(M, DOUBLE | BLOCK | {"exempt_share": 0.03}, "exempt"),
    "exempt_double_10": Contender(M, DOUBLE | BLOCK | {"exempt_share": 0.10}, "exempt"),
    "representation_double": Contender(M, DOUBLE | {"predict_from": ("representation",)}, "exempt"),
    "both": Contender(M, {"predict_from": ("block", "representation")}, "exempt"),
    "both_double": Contender(M, DOUBLE | {"predict_from": ("block", "representation")}, "exempt"),
    "silent": Contender(M, {"predict_from": ()}, "exempt"),
    "budgeted_double": Contender("", DOUBLE | BLOCK, "exempt"),  # learned blocks
    "guarded": Contender("mast5_no_uncertainty_small"),
}


def probed(images: int) -> NamedSets:
    """The sets of the probes after so many training images, of which half are enough."""
    few = images // 4
    return NamedSets(train=f"toys@train:{2 * few}", val=f"toys@val:{few}", test=f"toys@test:{few}")


@final
@dataclass(frozen=True)
class Forgetting(Experiment):
    """Views that destroy a factor (and color) × methods × seeds, on `toys`, six tasks.

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
        return [
            self._run(workplace, factor, name, seed)
            for seed in seeds
            for factor in self.factors
            for name, contender in self.contenders.items()
            if contender.recipe
        ]

    def _run(self, workplace: Workplace, factor: str, name: str, seed: int) -> StudyRun:
        contender = self.contenders[name]
        trial = f"{factor}-{name}-{seed}"
        epochs = self._epochs(factor)
        common: dict[str, Any] = {"projector": PROJECTOR}
        if contender.of is not None:
            common |= {**ONCE, "predicted": [PROPERTY[factor]]}
        if contender.of == "exempt":
            common |= {"exempt": [PROPERTY[factor]], "exempt_share": SHARE}
        config = workplace.configure(
            trial,
            contender.recipe,
            f"toys@train:{self.images}",
            recipe=trial,
            size=32,
            views=f"forget_{factor}",
            objective={**common, **contender.objective},
            encoder=dict(self.encoder),
            epochs=epochs,
            seed=seed,
            score_every=epochs,
        )
        changes = {"destroyed": factor, "method": name}
        return StudyRun(f"{factor}/{name}-{seed}", changes, config, seed, contender.trained)

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        """By task, linear accuracy and precision in every space."""
        sets = probed(self.images)
        if run.trained:
            protocols = {} if self.settings is None else self.settings.protocols
            results = mast.evaluate(
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

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """Linear accuracy, one row per factor destroyed and method."""
        rows = tuple(
            (
                factor, method, str(len(results)),
                *(cell([result["linear"][task] for result in results]) for task in TASKS),
                cell([statistics.fmean(result["linear"].values()) for result in results]),
            )
            for (factor, method), results in grouped(measured).items()
        )  # fmt: skip
        return Grid(("destroyed", "method", "seeds", *TASKS, "mean"), rows)


def grouped(measured: Mapping[str, Measured]) -> dict[tuple[str, str], list[Measured]]:
    """Results of all seeds, by factor and method, in the order of both."""
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for result in measured.values():
        groups[result["destroyed"], result["method"]].append(result)
    methods = list(CONTENDERS)
    return dict(
        sorted(groups.items(), key=lambda g: (DESTROYED.index(g[0][0]), methods.index(g[0][1])))
    )
