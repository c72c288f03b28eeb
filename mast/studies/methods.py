"""Every method beside the others: one loop, the same views, budgets and trials, paired intervals.

Its rates are chosen on validation images, the same number for each; test images are for what was
chosen.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, final

from mast.analyses import Grid
from mast.core.run import plain
from mast.protocols.run import EvaluationSettings
from mast.runs.cost import flops_an_image
from mast.studies.does_it_help import COLUMNS, PROTOCOLS, SETTINGS, DoesItHelp, mean_of_tasks
from mast.studies.engine import StudyRun
from mast.studies.experiment import Experiment, Measured, Workplace, last_metrics
from mast.studies.probes import probe
from mast.studies.seeds import cell
from mast.studies.small_runs import CIFAR, NARROW, SIZE, link_cifar
from mast.studies.variants import ALL_BUT_ONE, LR

LABELLED = f"{CIFAR}-labelled"
VIEWS = "mast5"
CLASSES = 10  # of CIFAR-10
RATES = (LR / 3, LR, 3 * LR)
ROTATION = "cifar10/class/rotation"


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        title: As its paper prints it.
        recipe: What trains it.
        changes: What differs from the recipe, beside what all rows share.
        rates: Those that validation chooses from; none for an encoder that is not trained.
        tuned: What was chosen before on the same validation images; empty for nothing.
        labels: Whether it is given the images' labels.
    """

    title: str
    recipe: str
    changes: Mapping[str, Any] = {}
    rates: tuple[float, ...] = RATES
    tuned: str = ""
    labels: bool = False


WEIGHT = "invariance 10 of 5, 10, 25"
ROWS: dict[str, Row] = {
    "untrained": Row("untrained", "vicreg5_small", rates=()),
    "vicreg": Row("VICReg", "vicreg5_small", tuned=WEIGHT),
    "vicreg_scheduled": Row(
        "VICReg, an operator left out of half of the pairs",
        "vicreg5_small",
        {"schedule": plain(ALL_BUT_ONE)},
        tuned=WEIGHT,
    ),
    "vicreg_augself": Row("VICReg + AugSelf", "vicreg5_augself_small", tuned=WEIGHT),
    "simclr": Row("SimCLR", "simclr_small"),
    "moco_v2": Row("MoCo v2", "moco_v2_small"),
    "moco_v3": Row("MoCo v3", "moco_v3_small"),
    "simsiam": Row("SimSiam", "simsiam_small"),
    "simsiam_augself": Row("SimSiam + AugSelf", "simsiam_augself_small"),
    "byol": Row("BYOL", "byol_small"),
    "barlow_twins": Row("Barlow Twins", "barlow_twins_small"),
    "swav": Row("SwAV, two views", "swav_small"),
    "dino": Row("DINO, two views", "dino_small"),
    "looc": Row("LooC, four views", "looc_small", {"views": "looc"}),
    "supervised": Row(
        "supervised", "supervised_small", {"objective": {"classes": CLASSES}}, labels=True
    ),
    "mast_guarded": Row("MAST, learned masks", "mast5_guarded_small", tuned=WEIGHT),
    "mast": Row("MAST", "mast5_small", tuned=WEIGHT),
}


@final
@dataclass(frozen=True)
class Methods(Experiment):
    """Methods × seeds on the same images, views and epochs, each at the best of its rates.

    The sets are those of `does_it_help`. Runs `validation/…` have seed 0 and one of a row's rates;
    when all of a row are measured, its runs `test/…` follow at the rate whose mean of four tasks is
    best.
    """

    results: ClassVar[str] = "small"
    seeded: ClassVar[bool] = True

    rows: Mapping[str, Row] = field(default_factory=lambda: ROWS)
    images: int = 10_000
    epochs: int = 12
    batch_size: int = 64
    encoder: Mapping[str, Any] = field(default_factory=lambda: {**NARROW, "stem_stride": 2})
    settings: EvaluationSettings = SETTINGS

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        """See `Experiment.plan`."""
        trials = {
            name: [self._run(workplace, name, rate, 0, "validation") for rate in row.rates]
            for name, row in self.rows.items()
        }
        runs = [trial for row in trials.values() for trial in row]
        for seed in seeds:
            for name, row in trials.items():
                rate = self._chosen(row, workplace)
                if not row or rate is not None:
                    runs.append(self._run(workplace, name, rate, seed, "test"))
        return runs

    def _chosen(self, trials: Sequence[StudyRun], workplace: Workplace) -> float | None:
        """The rate whose trial was best on validation images; None until all are measured."""
        measured = self.measured(trials, workplace.out)
        if not trials or len(measured) < len(trials):
            return None
        best = max(trials, key=lambda run: mean_of_tasks(measured[run.name]))
        rate: float = best.changes["rate"]
        return rate

    def _run(
        self, workplace: Workplace, name: str, rate: float | None, seed: int, score: str
    ) -> StudyRun:
        row = self.rows[name]
        trial = f"{name}-{seed}" if rate is None else f"{name}-{rate:.2g}-{seed}"
        config = workplace.configure(
            trial,
            row.recipe,
            workplace.derived(LABELLED if row.labels else CIFAR),
            **{
                "size": SIZE,
                "views": VIEWS,
                "encoder": dict(self.encoder),
                "optimizer": {"lr": LR if rate is None else rate},
                "epochs": self.epochs,
                "batch_size": self.batch_size,
                "seed": seed,
                "precision": "bf16-mixed",
                "score_every": self.epochs,
                **row.changes,
            },
        )
        changes = {"row": name, "rate": rate}
        result = trial if score == "validation" else f"{name}-{seed}"
        return StudyRun(f"{score}/{result}", changes, config, seed, trained=rate is not None)

    def prepare(self, workplace: Workplace) -> None:
        """See `Experiment.prepare`."""
        link_cifar(workplace, self.images)
        link_cifar(workplace, self.images, LABELLED, flat=False)
        self._sets().prepare(workplace)

    def _sets(self) -> DoesItHelp:
        return DoesItHelp(images=self.images, variants={})

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        """See `Experiment.measure`."""
        assert run.config is not None
        score = run.name.partition("/")[0]
        probed = probe(
            workplace.frozen(run),
            self._sets().sets(workplace, score),
            PROTOCOLS[score],
            self.settings,
        )
        metrics = last_metrics(run.folder) if run.trained else {}
        steps = self.images // self.batch_size * self.epochs if run.trained else 0
        images_seen = steps * self.batch_size
        return {
            **run.changes,
            "seed": run.seed,
            "scores": probed.scores,
            "each": probed.each,
            "last_metrics": metrics,
            "minutes": metrics.get("seconds", 0.0) / 60,
            "images_seen": images_seen,
            "flops": images_seen * flops_an_image(run.config) if run.trained else 0.0,
            "trials": len(self.rows[run.changes["row"]].rates),
        }

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """See `Experiment.table`: of the test one row a method, of validation one a trial."""
        groups: dict[tuple[str, str, str], list[Measured]] = defaultdict(list)
        for name, result in measured.items():
            rate = "" if result["rate"] is None else f"{result['rate']:.2g}"
            groups[name.partition("/")[0], result["row"], rate].append(result)
        ordered = sorted(
            groups.items(),
            key=lambda item: (item[0][0], -statistics.fmean(map(mean_of_tasks, item[1]))),
        )
        rows = tuple(
            (
                score, self.rows[name].title, rate, str(len(results)),
                *(cell([result["scores"].get(task) for result in results])
                  for task in (*COLUMNS, ROTATION)),
                cell([mean_of_tasks(result) for result in results]),
                cell([result["minutes"] for result in results]),
            )
            for (score, name, rate), results in ordered
        )  # fmt: skip
        columns = (*COLUMNS.values(), "rotation", "mean of four", "minutes")
        return Grid(("score", "method", "rate", "seeds", *columns), rows)

