"""Methods compared at one small budget: the same loop, views, images and trials.

Learning rates are chosen on validation images, from equally many per method; only the chosen rate
is tested.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch
from scipy.stats import t as student
from torch import Tensor

from experiments.does_it_help import COLUMNS, TASKS, DoesItHelp
from experiments.label_free import label_free
from experiments.small_sets import Probed, probe
from experiments.variants import ALL_BUT_ONE, LR
from mast.analyses import Grid
from mast.augment import PRESETS
from mast.core.launch import Precision
from mast.core.run import plain
from mast.data import open_canvas
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import EvaluationSettings
from mast.methods import METHODS
from mast.models.depths import Depths
from paper.experiment import (
    CIFAR,
    IMAGES,
    NARROW,
    SIZE,
    Measured,
    Workplace,
    last_metrics,
    link_cifar,
)
from paper.methods import BASELINES, recipe
from paper.seeds import cell, difference, spread, unpack
from paper.studies.engine import StudyRun
from paper.tables.flops import flops_an_image
from paper.tables.paper import AUGSELF, NEAR_COPIES
from paper.tables.reproduction import RESULTS, TableExperiment

DEPTHS = "depths/"
GENERATED = "factors"  # images of which these are known
KNOWN = ("position", "orientation")
LABELLED = f"{CIFAR}-labelled"
VIEWS = "mast5"
CLASSES = 10  # of CIFAR-10
RATES = (LR / 3, LR, 3 * LR)
# Under these operators, at half and full magnitude, objects are classified again.
ROBUST = ("color_jitter", "grayscale", "gaussian_blur", "gaussian_noise", "rotate", "cutout")
PROTOCOLS = {
    "validation": {"cifar10": ("knn", "linear"), "flowers17": ("linear",), "textures": ("linear",)},
    "test": {
        "cifar10": ("knn", "linear", "rotation", "robust"),
        "flowers17": ("linear",),
        "textures": ("linear",),
    },
}
SETTINGS = EvaluationSettings(protocols={"robust": {"operators": ROBUST, "magnitudes": (0.5, 1.0)}})
TESTED = {
    **COLUMNS,
    "cifar10/class/robust/changed": "objects, changed",
    "cifar10/rotation/rotation": "rotation",
}


class Tasks(NamedTuple):
    """What an encoder is measured by.

    Attributes:
        protocols: By "validation" or "test", then by set.
        columns: Of the table: a score's key, and its title.
        groups: The mean by which rates are chosen is that of groups, each the mean of some scores.
        photos: Folders of photos, a class a subfolder, beside the sets of `does_it_help`: half of
            each is learned from, a fifth validates, the rest is tested.
        size: Of their views.
        depths: Whether linear probes see all depths of the encoder as well, but for generated
            images; keys begin with `DEPTHS`.
    """

    protocols: Mapping[str, Mapping[str, Sequence[str]]] = PROTOCOLS
    columns: Mapping[str, str] = TESTED
    groups: Mapping[str, tuple[str, ...]] = {COLUMNS[task]: (task,) for task in TASKS}
    photos: tuple[str, ...] = ()
    size: int = 64
    depths: bool = False

    def mean(self, result: Measured, representation: str = "") -> float:
        """Of the groups, in percent, with the last map or with `DEPTHS`."""
        return statistics.fmean(self.group(result, title, representation) for title in self.groups)

    def group(self, result: Measured, title: str, representation: str = "") -> float:
        """The mean of a group's scores, in percent."""
        keys = self.groups[title]
        return statistics.fmean(result["scores"][f"{representation}{key}"] for key in keys)

    @property
    def read(self) -> str:
        """The representation by which rates are chosen and methods are ranked."""
        return DEPTHS if self.depths else ""

    def score(self, result: Measured) -> float:
        """The mean of groups with that representation."""
        return self.mean(result, self.read)

    def lead(self, results: Sequence[Measured], others: Sequence[Measured]) -> str:
        """How far the mean of groups is above that of others, over common seeds.

        With the 95 % interval over seeds and, where it is known what each image contributed, over
        test images: tasks of one set share these, sets are independent.
        """
        by_seed = {other["seed"]: other for other in others}
        pairs = [(each, by_seed[each["seed"]]) for each in results if each["seed"] in by_seed]
        gains = [self.score(result) - self.score(other) for result, other in pairs]
        text = f"{statistics.fmean(gains):+.2f}"
        if len(gains) > 1:
            text += " (seeds {:+.2f} to {:+.2f})".format(*over_seeds(gains))
        weights = {
            f"{self.read}{key}": 1 / len(keys) / len(self.groups)
            for keys in self.groups.values()
            for key in keys
        }
        if any(key not in each["each"] for pair in pairs for each in pair for key in weights):
            return text
        of_set: dict[str, Tensor] = {}
        for key, weight in weights.items():
            gain_N = torch.stack(
                [unpack(each["each"][key]) - unpack(other["each"][key]) for each, other in pairs]
            ).mean(dim=0)
            name = key.removeprefix(self.read).partition("/")[0]
            of_set[name] = of_set.get(name, 0.0) + weight * gain_N
        variance = sum(float(gain_N.var()) / len(gain_N) for gain_N in of_set.values())
        mean, margin = statistics.fmean(gains), 196 * math.sqrt(variance)
        return f"{text} [{mean - margin:+.2f}, {mean + margin:+.2f}]"

    def sets(self, workplace: Workplace, score: str, count: int) -> dict[str, list[EvaluationData]]:
        """By name; those of CIFAR-10 learn from `count` images."""
        sets = DoesItHelp(images=count, variants={}).sets(workplace, score)
        for name in self.photos:
            whole = workplace.open(name, self.size)
            train, val, test = (
                whole.subset(np.sort(part_N))
                for part_N in np.split(
                    np.random.default_rng(0).permutation(len(whole)),
                    [len(whole) // 2, 7 * len(whole) // 10],
                )
            )
            tested = test if score == "test" else val
            sets[name] = [EvaluationData(train, None, tested, self.size)]
        if GENERATED in self.protocols[score]:
            part = "val" if score == "validation" else "test"
            drawn = (open_canvas(f"{GENERATED}@{split}:2000", SIZE) for split in ("train", part))
            learned, tested = (
                replace(canvases, targets={name: canvases.targets[name] for name in KNOWN})
                for canvases in drawn
            )
            sets[GENERATED] = [EvaluationData(learned, None, tested, SIZE)]
        return sets

    def probe(
        self,
        encoder: FrozenEncoder,
        sets: Mapping[str, Sequence[EvaluationData]],
        score: str,
        settings: EvaluationSettings,
    ) -> Probed:
        """The scores of an encoder."""
        found = probe(encoder, sets, self.protocols[score], settings)
        if self.depths:
            every = FrozenEncoder(Depths(encoder.module, SIZE), encoder.bench.compute)
            real = {name: parts for name, parts in sets.items() if name != GENERATED}
            deep = probe(every, real, dict.fromkeys(real, ("linear",)), settings)
            for own, others in ((found.scores, deep.scores), (found.each, deep.each)):
                own |= {f"{DEPTHS}{key}": value for key, value in others.items()}
        return found


TASKS_OF_SMALL = Tasks()


def over_seeds(gains: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a mean over seeds, by Student's t."""
    margin = float(student.ppf(0.975, len(gains) - 1)) * spread(gains) / len(gains) ** 0.5
    mean = statistics.fmean(gains)
    return mean - margin, mean + margin


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        title: Of the method.
        recipe: What trains it; empty for what was measured once and cannot be trained any more.
        changes: What differs from the recipe, beside what all rows share.
        rates: Those that validation chooses from; none for an encoder that is not trained.
        tuned: What earlier studies chose on the same validation images; empty for nothing.
        labels: Whether it is given the images' labels.
        optimizer: What differs in it, beside the rate.
    """

    title: str
    recipe: str
    changes: Mapping[str, Any] = {}
    rates: tuple[float, ...] = RATES
    tuned: str = ""
    labels: bool = False
    optimizer: Mapping[str, Any] = {}


WEIGHT = "invariance 10 of 5, 10, 25"
TOLD = f"{WEIGHT}; prediction 0.5 of 0.5, 1"
ROWS: dict[str, Row] = {
    "untrained": Row("untrained", "vicreg5_small", rates=()),
    "vicreg": Row("VICReg", "vicreg5_small", tuned=WEIGHT),
    "vicreg_scheduled": Row(
        "VICReg, an operator left out of half of the pairs",
        "vicreg5_small",
        {"schedule": plain(ALL_BUT_ONE)},
        tuned=WEIGHT,
    ),
    "vicreg_augself": Row("VICReg + AugSelf", "vicreg5_augself_small", tuned=TOLD),
    "simclr": Row("SimCLR", "simclr_small"),
    "moco_v2": Row("MoCo v2", "moco_v2_small"),
    "moco_v3": Row("MoCo v3", "moco_v3_small"),
    "simsiam": Row("SimSiam", "simsiam_small"),
    "simsiam_augself": Row(
        "SimSiam + AugSelf", "simsiam_augself_small", tuned="prediction 0.5 of 0.5, 1, for VICReg"
    ),
    "byol": Row("BYOL", "byol_small"),
    "barlow_twins": Row("Barlow Twins", "barlow_twins_small"),
    "swav": Row("SwAV, two views", "swav_small"),
    "dino": Row("DINO, two views", "dino_small"),
    "looc": Row("LooC, four views", "looc_small", {"views": "looc"}),
    "supervised": Row(
        "supervised", "supervised_small", {"objective": {"classes": CLASSES}}, labels=True
    ),
    "mast_guarded": Row(
        "MAST, no uncertainty",
        "mast5_no_uncertainty_small",
        tuned=f"{WEIGHT}; how masks start, move and are rewarded; an operator left out",
    ),
    "mast": Row(
        "MAST-C over VICReg's distance",
        "mast_c5_distance_small",
        tuned=f"{TOLD}; from the block, the representation or both; a share of .03 of .03, .1",
    ),
}


def without_row(rows: Mapping[str, Row]) -> list[str]:
    """The methods that a table leaves out."""
    has = {type(recipe(row.recipe).objective) for row in rows.values()}
    return [row.title for row in (METHODS | BASELINES).values() if row.config not in has]


ABOUT = (
    "Temperatures, momenta and other weights are those of the small recipes and were not tuned.",
    f"Not in the table: {', '.join(without_row(ROWS))}.",
    AUGSELF,
    "SwAV and DINO must be rerun: their prototypes and normalization had bugs.",
    "MAST-C over VICReg's distance was the default when this was measured; MAST has neither the "
    "paper's uncertainty nor its two stages here.",
)

TUNED = (
    "Earlier studies of VICReg, MAST and MAST-C on some of these validation images, learning rate "
    f"{LR}, chose what the budgets list as chosen before."
)


@final
@dataclass(frozen=True)
class Small(TableExperiment):
    """Rows × seeds on the same images, views and epochs, each at the best of its rates.

    The sets are those of `does_it_help`. Runs `validation/…` have seed 0 and one of a row's rates;
    runs `test/…` wait for them and have the rate whose mean of four tasks is best.

    Args:
        rows: By name; what the others are compared with is `baseline`.
        count: Images of CIFAR-10 to pretrain on.
        epochs: Of all runs.
        batch_size: Of all runs.
        encoder: Of all runs.
        settings: Of the protocols on test images; validation has `SETTINGS`.
        tasks: Sets and protocols.
        results: See `Experiment`.
        title: See `TableExperiment`.
        baseline: A key of `rows`.
        about: What a reader has to know of these rows.
        precision: Of training. At 32 pixels a CPU is faster in float32.
        tested: Whether the best rate is tested; otherwise all seeds are scored on validation
            images, at every rate.
    """

    seeded: ClassVar[bool] = True

    rows: Mapping[str, Row] = field(default_factory=lambda: ROWS)
    count: int = 10_000
    epochs: int = 12
    batch_size: int = 64
    encoder: Mapping[str, Any] = field(default_factory=lambda: {**NARROW, "stem_stride": 2})
    settings: EvaluationSettings = SETTINGS
    tasks: Tasks = TASKS_OF_SMALL
    results: str = "small"  # type: ignore[misc]  # of a class elsewhere
    title: str = "The methods at one small budget"
    baseline: str = "vicreg"
    about: tuple[str, ...] = ABOUT
    precision: Precision = "bfloat16"
    tested: bool = True

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        trials = {
            name: [
                self._run(workplace, name, rate, seed, "validation")
                for seed in ([0] if self.tested else seeds)
                for rate in row.rates
            ]
            for name, row in self.rows.items()
            if row.recipe
        }
        if not self.tested:
            runs = (trial for row in trials.values() for trial in row)
            return sorted(runs, key=lambda run: run.seed)
        tests = [
            self._test(workplace, name, trials[name], seed) for seed in seeds for name in trials
        ]
        return [*(trial for row in trials.values() for trial in row), *tests]

    def _test(
        self, workplace: Workplace, name: str, trials: Sequence[StudyRun], seed: int
    ) -> StudyRun:
        measured = self.measured(trials, workplace.out)
        trained = [run for run in trials if measured.get(run.name, {}).get("scores")]
        if len(measured) < len(trials) or (trials and not trained):  # what it costs is known
            run = self._run(workplace, name, self.rows[name].rates[0], seed, "test")
            return replace(run, changes={"row": name}, waits=True)
        rate = None
        if trials:
            best = max(trained, key=lambda run: self.tasks.score(measured[run.name]))
            rate = best.changes["rate"]
        return self._run(workplace, name, rate, seed, "test")

    def _run(
        self, workplace: Workplace, name: str, rate: float | None, seed: int, score: str
    ) -> StudyRun:
        row = self.rows[name]
        trial = f"{name}-{seed}" if rate is None else f"{name}-{rate:.2g}-{seed}"
        config = workplace.configure(
            trial,
            row.recipe,
            workplace.derived(LABELLED if row.labels else self._unlabeled),
            **{
                "size": SIZE,
                "views": VIEWS,
                "encoder": dict(self.encoder),
                "optimizer": {"lr": LR if rate is None else rate, **row.optimizer},
                "epochs": self.epochs,
                "batch_size": self.batch_size,
                "seed": seed,
                "precision": self.precision,
                "score_every": self.epochs,
                **row.changes,
            },
        )
        result = trial if score == "validation" else f"{name}-{seed}"
        return StudyRun(
            f"{score}/{result}", {"row": name, "rate": rate}, config, seed,
            trained=rate is not None, together=name,
        )  # fmt: skip

    @property
    def _unlabeled(self) -> str:
        return CIFAR if self.count == IMAGES else f"cifar10-{self.count}"

    def called(self, run: StudyRun) -> str:
        return self.rows[run.changes["row"]].title

    def images(self, run: StudyRun) -> int:
        return self.count

    def measures(self, run: StudyRun) -> Any:
        tasks, score = self.tasks, run.name.partition("/")[0]
        own = [tasks.photos, tasks.size, tasks.depths] if tasks.photos else []
        return [tasks.protocols[score], plain(self._settings(score)), *own]

    def _settings(self, score: str) -> EvaluationSettings:
        return self.settings if score == "test" else SETTINGS

    def prepare(self, workplace: Workplace) -> None:
        link_cifar(workplace, self.count, self._unlabeled)
        link_cifar(workplace, self.count, LABELLED, flat=False)
        DoesItHelp(images=self.count, variants={}).prepare(workplace)
        for name in self.tasks.photos:
            workplace.open(name, self.tasks.size)

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        assert run.config is not None
        score = run.name.partition("/")[0]
        sets = self.tasks.sets(workplace, score, self.count)
        encoder = workplace.frozen(run)
        probed = self.tasks.probe(encoder, sets, score, self._settings(score))
        own = sets["cifar10"][0]
        metrics = last_metrics(run.folder) if run.trained else {}
        images_seen = metrics.get("step", 0) * self.batch_size
        return {
            **run.changes,
            "seed": run.seed,
            "scores": probed.scores,
            "each": probed.each,
            "label_free": label_free(encoder, own.test, own.size, PRESETS[VIEWS].operators),
            "last_metrics": metrics,
            "minutes": metrics.get("seconds", 0.0) / 60,
            "images_seen": images_seen,
            "flops": images_seen * flops_an_image(run.config) if run.trained else 0.0,
            "fingerprint": self.fingerprint(run),
        }

    def diverged(self, run: StudyRun, reason: str) -> Measured:
        """A rate at which a method cannot be trained is no choice."""
        own = {"seed": run.seed, "fingerprint": self.fingerprint(run), "diverged": reason}
        return {**run.changes, **own, "scores": {}, "each": {}}

    def grids(self, measured: Mapping[str, Measured]) -> dict[str, Grid]:
        by_row: dict[str, dict[str, list[Measured]]] = {name: {} for name in self.rows}
        for name, result in measured.items():
            if result["row"] in by_row:
                by_row[result["row"]].setdefault(name.partition("/")[0], []).append(result)
        tests = {name: results["test"] for name, results in by_row.items() if "test" in results}
        if not self.tested:
            tests = {
                name: self.at_best(results["validation"])
                for name, results in by_row.items()
                if "validation" in results
            }
        tested = {
            name: trained
            for name, results in tests.items()
            if (trained := [result for result in results if result["scores"]])
        }
        best_first = sorted(
            tested, key=lambda name: -statistics.fmean(map(self.tasks.score, tested[name]))
        )
        seeds = {name: _seeds(tests[name], tested[name]) for name in best_first}
        grids = {RESULTS: self._scores(best_first, tested, seeds)}
        if self.tasks.depths:
            grids["by groups of tasks"] = self._grouped(best_first, tested, seeds)
        if self.baseline in tested:
            ahead = f"ahead of {self.rows[self.baseline].title}, in points"
            grids[ahead] = self._ahead(best_first, tested)
        tried = {name: results["validation"] for name, results in by_row.items()
                 if "validation" in results}  # fmt: skip
        grids["rates, by the mean of four tasks on validation images"] = self._trials(tried)
        return {**grids, "budgets": self._budgets(tested, tried)}

    def at_best(self, results: Sequence[Measured]) -> list[Measured]:
        """The results, one per seed, of the rate that is best over seeds."""
        by_rate: dict[float, list[Measured]] = {}
        for result in results:
            by_rate.setdefault(result["rate"], []).append(result)
        whole = {
            rate: each
            for rate, each in by_rate.items()
            if all(result["scores"] for result in each)
            and len(each) == max(map(len, by_rate.values()))
        }
        if not whole:
            return []
        return whole[
            max(whole, key=lambda rate: statistics.fmean(map(self.tasks.score, whole[rate])))
        ]

    def _scores(
        self,
        names: Sequence[str],
        tested: Mapping[str, Sequence[Measured]],
        seeds: Mapping[str, str],
    ) -> Grid:
        rows = tuple(
            (
                self.rows[name].title, seeds[name],
                *(
                    cell([result["scores"].get(task) for result in tested[name]])
                    for task in self.tasks.columns
                ),
                cell([self.tasks.mean(result) for result in tested[name]]),
                *(
                    [cell([self.tasks.mean(result, DEPTHS) for result in tested[name]])]
                    if self.tasks.depths
                    else []
                ),
            )
            for name in names
        )  # fmt: skip
        means = ("mean of four", "mean of four, depths")[: 2 if self.tasks.depths else 1]
        return Grid(("method", "seeds", *self.tasks.columns.values(), *means), rows)

    def _grouped(
        self,
        names: Sequence[str],
        tested: Mapping[str, Sequence[Measured]],
        seeds: Mapping[str, str],
    ) -> Grid:
        """Means of groups by all depths and of all groups by the last map."""
        tasks = self.tasks
        rows = tuple(
            (
                self.rows[name].title, seeds[name],
                *(
                    cell([tasks.group(result, title, DEPTHS) for result in tested[name]])
                    for title in tasks.groups
                ),
                *(
                    cell([tasks.mean(result, each) for result in tested[name]])
                    for each in (DEPTHS, "")
                ),
            )
            for name in names
        )  # fmt: skip
        return Grid(("method", "seeds", *tasks.groups, "mean", "mean, last map"), rows)

    def _ahead(self, names: Sequence[str], tested: Mapping[str, Sequence[Measured]]) -> Grid:
        baseline = tested[self.baseline]
        seeds = {result["seed"] for result in baseline}
        rows = tuple(
            (
                self.rows[name].title,
                *(str(difference(tested[name], baseline, task)) for task in self.tasks.columns),
                self.tasks.lead(tested[name], baseline),
            )
            for name in names
            if name != self.baseline and seeds & {result["seed"] for result in tested[name]}
        )
        return Grid(("method", *self.tasks.columns.values(), "mean"), rows)

    def _trials(self, tried: Mapping[str, Sequence[Measured]]) -> Grid:
        rates = sorted({rate for name in tried for rate in self.rows[name].rates})
        rows: list[tuple[str, ...]] = []
        for name, results in tried.items():
            by_rate = {
                rate: [result for result in results if result["rate"] == rate] for rate in rates
            }
            trials = (self._trial(by_rate[rate]) for rate in rates)
            rows.append((self.rows[name].title, *trials, self._best(name, results)))
        return Grid(("method", *(f"{rate:.2g}" for rate in rates), "best"), tuple(rows))

    def _best(self, name: str, results: Sequence[Measured]) -> str:
        """The rate that is best; at the edge of those tried a better one may lie beyond."""
        rates = sorted(self.rows[name].rates)
        best = self.at_best(results)
        if {result["rate"] for result in results} != set(rates):
            return ""
        if not best:
            return "none"
        rate = best[0]["rate"]
        edge = len(rates) > 1 and rate in (rates[0], rates[-1])
        return f"{rate:.2g}{' (at the edge)' if edge else ''}"

    def _trial(self, results: Sequence[Measured]) -> str:
        if not results:
            return ""
        if not all(result["scores"] for result in results):
            return "diverged"
        return f"{statistics.fmean(map(self.tasks.score, results)):.1f}"

    def _budgets(
        self, tested: Mapping[str, Sequence[Measured]], tried: Mapping[str, Sequence[Measured]]
    ) -> Grid:
        rows = tuple(
            (
                self.rows[name].title,
                f"{results[0]['images_seen']:,}",
                f"{results[0]['flops'] / 1e12:.0f}",
                cell([result["minutes"] for result in results]),
                len({result["rate"] for result in tried.get(name, ())}),
                self.rows[name].tuned or "nothing",
            )
            for name, results in tested.items()
        )
        columns = ("method", "images seen", "TFLOP", "minutes", "trials", "chosen before, by the "
                   "same validation images")  # fmt: skip
        return Grid(columns, rows)

    def notes(self) -> tuple[str, ...]:
        *titles, last = self.tasks.groups
        read = ", on all depths" if self.tasks.depths else ""
        tuned = any(row.tuned for row in self.rows.values())
        looc = " (LooC four of them)" if "looc" in self.rows else ""
        return (
            f"{self.count:,} images of CIFAR-10, a narrow ResNet-10, {self.epochs} epochs; all "
            f"methods get the same views{looc}, each with the best learning rate tried.",
            *(TUNED,) * tuned,
            *self.about,
            NEAR_COPIES,
            f"Learning rates maximize the mean of {', '.join(titles)} and {last}{read}, which "
            "favors AugSelf and MAST-C: both are built to keep color.",
            "Differences: mean ± standard deviation over seeds [95 % interval over test images, "
            "with these seeds]. The trials use seed 0, too."
            if self.tested
            else "All scores are of validation images.",
            "This budget says nothing about methods meant for long runs or large batches.",
        )


def _seeds(results: Sequence[Measured], trained: Sequence[Measured]) -> str:
    lost = len(results) - len(trained)
    return f"{len(trained)}, {lost} diverged" if lost else str(len(trained))
