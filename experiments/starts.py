"""What is a start from weights worth? Small sets, from CIFAR-10's weights and from random ones."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

from experiments.does_it_help import DoesItHelp
from experiments.small_sets import probe
from experiments.variants import LR
from mast.analyses import Grid
from mast.config import PretrainConfig
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import EvaluationSettings
from paper.experiment import (
    CIFAR,
    NARROW,
    SIZE,
    Experiment,
    Measured,
    Workplace,
    last_metrics,
    link_cifar,
)
from paper.seeds import cell
from paper.studies.engine import StudyRun

SOURCE = "source"
SCORES = ("validation", "test")
PARTS = {"flowers17": "flowers17/train", "textures": "dtd10/train"}  # what is trained on
COLUMNS = {
    "flowers17/class/linear": "flowers",
    "textures/class/linear": "textures",
    "cifar10/class/linear": "objects",
    "cifar10/colour/linear": "color",
}
PROTOCOLS = dict.fromkeys(("cifar10", "flowers17", "textures"), ("linear",))


class Start(NamedTuple):
    """A way to an encoder of a set.

    Attributes:
        recipe: What trains it.
        rate: The encoder's rate as a share of that of what is beside it, from the source's
            weights; None: it starts from random weights.
    """

    recipe: str
    rate: float | None


STARTS = {
    "mast-random": Start("mast_c5_distance_small", None),
    "mast-1": Start("mast_c5_distance_small", 1.0),
    "mast-0.3": Start("mast_c5_distance_small", 0.3),
    "mast-0.1": Start("mast_c5_distance_small", 0.1),
    "vicreg-random": Start("vicreg5_small", None),
    "vicreg-1": Start("vicreg5_small", 1.0),
    "vicreg-0.3": Start("vicreg5_small", 0.3),
    "vicreg-0.1": Start("vicreg5_small", 0.1),
}


@final
@dataclass(frozen=True)
class Starts(Experiment):
    """Small sets × methods and starts × seeds.

    The source is a run of MAST on images of CIFAR-10. Linear probes score each encoder on both
    small sets and on CIFAR-10, on validation images as `does_it_help` has them or on test images.
    It needs `cifar10/{train,test}`, `flowers17/{train,val,test}` and `dtd10/{train,test}`.
    """

    results: ClassVar[str] = "starts"
    seeded: ClassVar[bool] = True

    starts: Mapping[str, Start] = field(default_factory=lambda: STARTS)
    images: int = 10_000
    source_epochs: int = 12
    epochs: int = 100
    batch_size: int = 64
    encoder: Mapping[str, Any] = field(default_factory=lambda: {**NARROW, "stem_stride": 2})
    settings: EvaluationSettings | None = None

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        """All start from one source, which has to be trained before."""
        source = self._configure(
            workplace, SOURCE, "mast_c5_distance_small", workplace.derived(CIFAR)
        )
        runs = [StudyRun(SOURCE, {"set": "cifar10", "start": "random"}, source)]
        for seed in seeds:
            config = replace(source, seed=seed)
            changes = {"set": "none", "start": "random"}
            runs.append(StudyRun(f"untrained-{seed}", changes, config, seed, trained=False))
            for set_name, part in PARTS.items():
                for name, (recipe, rate) in self.starts.items():
                    trial = f"{set_name}-{name}-{seed}"
                    own = {} if rate is None else {"encoder": {"weights": str(source.out)}}
                    config = self._configure(
                        workplace, trial, recipe, workplace.sets / part, seed=seed,
                        epochs=self.epochs,
                        optimizer={"lr": LR, "encoder_rate": 1.0 if rate is None else rate}, **own,
                    )  # fmt: skip
                    runs.append(StudyRun(trial, {"set": set_name, "start": name}, config, seed))
        return [replace(run, name=f"{score}/{run.name}") for run in runs for score in SCORES]

    def _configure(
        self, workplace: Workplace, name: str, recipe: str, data: Path, **changes: Any
    ) -> PretrainConfig:
        own = {
            "encoder": dict(self.encoder),
            "optimizer": {"lr": LR},
            "epochs": self.source_epochs,
        } | changes
        return workplace.configure(
            name,
            recipe,
            data,
            size=SIZE,
            batch_size=self.batch_size,
            score_every=own["epochs"],
            **own,
        )

    def prepare(self, workplace: Workplace) -> None:
        link_cifar(workplace, self.images)
        for name in (*PARTS.values(), "cifar10/test", "flowers17/val", "flowers17/test",
                     "dtd10/test"):  # fmt: skip
            workplace.open(name, SIZE)

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        assert run.config is not None
        sets = self.sets(workplace, run.name.partition("/")[0])
        probed = probe(workplace.frozen(run), sets, PROTOCOLS, self.settings)
        metrics = last_metrics(run.folder) if run.trained else {}
        return {
            **run.changes,
            "seed": run.seed,
            "scores": probed.scores,
            "each": probed.each,
            "minutes": metrics.get("seconds", 0.0) / 60,
            "epochs": run.config.epochs if run.trained else 0,
        }

    def sets(self, workplace: Workplace, score: str) -> dict[str, list[EvaluationData]]:
        """The probes' sets, those of `does_it_help`."""
        return DoesItHelp(images=self.images).sets(workplace, score)

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """One row per set and start, by score."""
        groups: dict[tuple[str, str, str], list[Measured]] = defaultdict(list)
        for name, result in measured.items():
            groups[name.partition("/")[0], result["set"], result["start"]].append(result)
        rows = tuple(
            (
                *key, str(len(results)),
                *(cell([result["scores"][task] for result in results]) for task in COLUMNS),
            )
            for key, results in sorted(groups.items())
        )  # fmt: skip
        return Grid(("score", "trained on", "start", "seeds", *COLUMNS.values()), rows)
