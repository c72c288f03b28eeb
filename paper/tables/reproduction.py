"""A table of the paper, reproduced at one of two scales, next to the printed numbers.

`TableExperiment` is what such tables have in common; `costs` says what they take beforehand.
"""

import hashlib
import json
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast, final

import torch

from mast.analyses import Grid
from mast.config import PretrainConfig, build_method, deciding
from mast.core.errors import UserError
from mast.data.canvas import canvas_size
from mast.evaluation.named_sets import NamedSets
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder, protocol_class
from mast.evaluation.result import Result
from mast.methods import METHODS
from mast.runs.cost import measured
from paper.experiment import (
    IMAGES,
    Experiment,
    Measured,
    Workplace,
    last_metrics,
    link_cifar,
    read_result,
)
from paper.methods import recipe
from paper.seeds import cell, difference, pack
from paper.studies.engine import FINISHED, TO_DO, StudyRun
from paper.tables.flops import REACHED, REACHED_ONCE, flops_an_image
from paper.tables.paper import (
    SCALES,
    SETS,
    SMALL_SET,
    Measure,
    PaperTable,
    Scale,
    ScaleName,
    TableRow,
)

RESULTS = "results"
NAMES = ("recipe", "data.spec")  # of what was started from, and of the place of the images


def trained(config: PretrainConfig) -> dict[str, Any]:
    """What decides a run and is not the plain default, so that a new field changes no result."""
    plain_run = deciding(PretrainConfig(objective=type(config.objective)()))
    return {
        name: value
        for name, value in deciding(config).items()
        if name not in NAMES and plain_run.get(name) != value
    }


def digest(what: Any) -> str:
    """Sixteen digits of anything that JSON can hold, or whose text tells it from others."""
    text = json.dumps(what, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class TableExperiment(Experiment):
    """An experiment whose results are a table to print, with its differences and its budgets."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Of the table, with its source."""

    @abstractmethod
    def called(self, run: StudyRun) -> str:
        """A name for runs of equal cost, which differ in seed or tuned values."""

    @abstractmethod
    def images(self, run: StudyRun) -> int:
        """How many images a run is pretrained on; they need not be there."""

    @abstractmethod
    def grids(self, measured: Mapping[str, Measured]) -> dict[str, Grid]:
        """Tables by heading, of results by the name of the run; the first has the scores."""

    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers has to know."""

    def fingerprint(self, run: StudyRun) -> str:
        """A digest of what a run is and how it is measured; old results have another."""
        assert run.config is not None
        return digest([trained(run.config), run.trained, self.measures(run)])

    @abstractmethod
    def measures(self, run: StudyRun) -> Any:
        """Sets, protocols and settings by which a run is measured."""

    def state(self, run: StudyRun, out: Path) -> str:
        """How far a run is; what was measured of another configuration is to do again."""
        state = super().state(run, out)
        if state == FINISHED:
            measured = self.measured([run], out).get(run.name, {})
            return state if measured.get("fingerprint") == self.fingerprint(run) else TO_DO
        return state

    def everything(self, workplace: Workplace) -> dict[str, Measured]:
        """Results of all seeds that were measured, by the name of the run; without old ones."""
        files = (workplace.out / self.results).rglob("*.json")
        found = [read_result(file).get("seed") for file in files]
        seeds = sorted({seed for seed in found if isinstance(seed, int)})  # others are no runs
        finished = [
            run for run in self.plan(workplace, seeds) if self.state(run, workplace.out) == FINISHED
        ]
        return self.measured(finished, workplace.out)

    @final
    def table(self, measured: Mapping[str, Measured]) -> Grid:
        return next(iter(self.grids(measured).values()))


def saved_bytes(config: PretrainConfig) -> tuple[int, int]:
    """Bytes of a run's weights, and of its optimizer's state."""
    with torch.device("meta"):
        method = build_method(config)
    weights = sum(each.nbytes for each in {*method.parameters(), *method.buffers()})
    trained = (each for each in method.parameters() if each.requires_grad)
    optimizer = config.optimizer
    moments = 2 if optimizer.name in ("adamw", "lamb") else int(optimizer.momentum != 0)
    return weights, moments * sum(each.nbytes for each in trained)


def costs(
    experiment: TableExperiment,
    workplace: Workplace,
    runs: Sequence[StudyRun],
    gpu: float | None,
) -> Grid:
    """What is left of a table's plan to train, and what that takes.

    Hours are computed from operations: at a share of the peak of `gpu` (operations per second), or
    at the speed of a few steps of the first run, which are trained here.
    """
    alike: dict[str, list[PretrainConfig]] = {}  # by name, as they differ in the seed alone
    images: dict[str, int] = {}
    folders = set()
    for run in runs:
        done = run.state == FINISHED or not run.trained or run.folder.encoder.is_file()
        if done or run.folder.path in folders or run.config is None:
            continue
        folders.add(run.folder.path)
        name = experiment.called(run)
        alike.setdefault(name, []).append(run.config)
        images.setdefault(name, experiment.images(run))
    columns = ("runs of", "runs", "images seen", "PFLOP", "hours", "disk, GB")
    if not alike:
        return Grid(columns, ())
    firsts = {name: configs[0] for name, configs in alike.items()}
    if gpu is not None:
        speed = REACHED * gpu
    else:  # a few steps of the first run that needs no labels are trained; one is needed
        unlabelled = (each for each in firsts.values() if not METHODS[each.method].method.labelled)
        config = next(unlabelled, next(iter(firsts.values())))
        config, images_per_second, _ = measured(config, workplace.pretrain)
        speed = images_per_second * flops_an_image(config)
    rows: list[tuple[Any, ...]] = []
    canvases: dict[str, float] = {}
    for name, config in firsts.items():
        count, batches = len(alike[name]), images[name] // config.batch_size
        seen = count * config.epochs * batches * config.batch_size
        flops, (weights, state) = seen * flops_an_image(config), saved_bytes(config)
        disk = count * (3 * weights + 2 * state)  # two checkpoints and the encoder
        rows.append((name, count, seen, flops, flops / speed, disk))
        side = config.data.canvas or canvas_size(config.size)
        resized = images[name] * side**2 * 3
        if resized <= config.data.cache_limit_gb * 1e9:
            canvases[f"{config.data.spec}@{side}"] = resized
    rows.append(("resized images", 0, 0, 0.0, 0.0, sum(canvases.values())))
    rows.append(("all", *map(sum, list(zip(*rows, strict=True))[1:])))
    shown = (
        (*counts, *(float(f"{value:.3g}") for value in (flops / 1e15, seconds / 3600, disk / 1e9)))
        for *counts, flops, seconds, disk in rows
    )
    return Grid(columns, tuple(shown))


def assumed(gpu: str | None) -> str:
    """What the hours of `costs` assume, in a sentence."""
    if gpu is None:
        return "Hours are measured on this machine; evaluation is not included."
    return (
        f"Hours assume one {gpu} at {REACHED:.0%} of its peak in bfloat16 ({REACHED_ONCE}); "
        "evaluation is not included."
    )


@final
@dataclass(frozen=True)
class Reproduction(TableExperiment):
    """Rows × sets that are pretrained on × seeds.

    Args:
        name: Of the table, as `table6`.
        paper: What it is.
        scale: Its budget; a key of `SCALES`.
        epochs: Epochs of a full-length run, in place of the scale's.
    """

    name: str
    paper: PaperTable
    scale: ScaleName = "small"
    epochs: int | None = None
    seeded: ClassVar[bool] = True

    @property
    def title(self) -> str:
        return f"{self.paper.title} ({self.paper.source}), scale {self.scale}"

    @property
    def results(self) -> str:  # type: ignore[override]  # of a class elsewhere
        length = "" if self.epochs is None else f"-{self.epochs}-epochs"
        return f"{self.name}/{self.scale}{length}"

    @property
    def budget(self) -> Scale:
        return SCALES[self.scale]

    def columns(self) -> tuple[Measure, ...]:
        """Columns at this scale, with replacements and omissions."""
        return tuple(column for _, column in self._replaced() if column is not None)

    def _replaced(self) -> Iterator[tuple[Measure, Measure | None]]:
        """Each column of the paper, and what takes its place."""
        for column in self.paper.columns:
            on = self.budget.trained_on.get(column.train, column.train)
            test = self.budget.tested_on.get(column.test, column.test)
            if not on or not test:
                yield column, None
                continue
            other, settings = SETS[test].title, column.settings
            if self.budget.settings is not None:
                settings = self.budget.settings.get(column.protocol, {})
            yield column, Measure(
                column.title if test == column.test else f"{column.title} ({other})", test, on,
                self.budget.protocols.get(column.protocol, column.protocol), column.measure,
                column.target, settings,
            )  # fmt: skip

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        return [
            StudyRun(
                f"{on}-{name}-{seed}", {"row": name, "on": on},
                self._config(workplace, row, on, seed), seed, trained=row.trained,
            )
            for seed in seeds
            for on in dict.fromkeys(column.train for column in self.columns())
            for name, row in self.paper.rows.items()
            if row.recipe and row.only_at in (None, self.scale)
        ]  # fmt: skip

    def _config(self, workplace: Workplace, row: TableRow, on: str, seed: int) -> PretrainConfig:
        images = workplace.sets / on / SETS[on].train
        config = workplace.configure(
            self.scale, row.recipe + self.budget.suffix,
            workplace.derived(on) if on == SMALL_SET else images, seed=seed,
            **self._changes(row, on),
        )  # fmt: skip
        # Named by their training, so that rows and tables share runs.
        own = digest({name: value for name, value in trained(config).items() if name != "seed"})
        run = f"{on}-{row.recipe}-{own[:6]}-{config.epochs}-epochs-{seed}"
        assert config.out is not None
        return replace(config, out=Path(config.out) / run)

    def _changes(self, row: TableRow, on: str) -> dict[str, Any]:
        """Fields of the configuration; those of the scale override those of the row."""
        changes: dict[str, Any] = dict(row.changes)
        length = self.paper.epochs
        if self.scale == "paper":
            of_set = dict(self.paper.by_set.get(on, {}))
            length = of_set.pop("epochs", length)
            changes = {**self.paper.changes, **of_set, **changes}
        changes |= self.budget.changes
        objective = {
            **changes.get("objective", {}),
            **self.budget.by_recipe.get(row.recipe, {}).get("objective", {}),
            **({"classes": SETS[on].classes} if row.labelled else {}),
        }
        if objective:
            changes["objective"] = objective
        epochs = row.epochs or length
        if (full := self.epochs or self.budget.epochs) is not None:
            share = row.epochs / length if row.epochs is not None and length is not None else 1
            epochs = max(1, round(full * share))
        if epochs is not None:
            changes["epochs"] = epochs
        return changes

    def called(self, run: StudyRun) -> str:
        row, on = self.paper.rows[run.changes["row"]], SETS[run.changes["on"]]
        return f"{row.title}, on {on.title}"

    def images(self, run: StudyRun) -> int:
        return SETS[run.changes["on"]].images

    def measures(self, run: StudyRun) -> list[Measure]:
        row = self.paper.rows[run.changes["row"]]
        return [
            column._replace(protocol=row.protocols.get(column.protocol, column.protocol))
            for column in self.columns()
            if column.train == run.changes["on"] and column.protocol not in row.unmeasured
        ]

    def check(self, run: StudyRun, workplace: Workplace) -> None:
        for name in {run.changes["on"], *(column.test for column in self.measures(run))}:
            if name != SMALL_SET and not (workplace.sets / name).is_dir():
                raise UserError(
                    f"{workplace.sets} has no folder {name}, the set {SETS[name].title}"
                )

    def prepare(self, workplace: Workplace) -> None:
        if any(column.train == SMALL_SET for column in self.columns()):
            link_cifar(workplace, IMAGES, SMALL_SET, flat=False)

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        """The result of a run; scores go by the titles of columns."""
        assert run.config is not None
        scores: dict[str, float] = {}
        intervals: dict[str, tuple[float, float]] = {}
        each: dict[str, str] = {}
        for column, result in self._measured(run, workplace):
            target = result.targets.get(column.target)
            if target is None or column.measure not in target.values:
                raise UserError(
                    f"{column.protocol} has no {column.measure} of {column.target} on "
                    f"{SETS[column.test].title}: it has too few classes, or others"
                )
            scores[column.title] = target.values[column.measure]
            ends = [target.values.get(f"{column.measure}_{end}") for end in ("low", "high")]
            if None not in ends:
                intervals[column.title] = cast(tuple[float, float], tuple(ends))
            credit_N = target.each.get(column.measure)
            # Of images; not of draws, which are too few for the interval of a table.
            if credit_N is not None and len(credit_N) == result.sizes["test"]:
                each[column.title] = pack(credit_N)
        metrics = last_metrics(run.folder) if run.trained else {"step": 0, "seconds": 0.0}
        images_seen = metrics["step"] * run.config.batch_size
        return {
            **run.changes,
            "seed": run.seed,
            "recipe": run.config.recipe,
            "epochs": run.config.epochs,
            "scores": scores,
            "intervals": intervals,
            "each": each,
            "minutes": metrics["seconds"] / 60,
            "images_seen": images_seen,
            "flops": images_seen * flops_an_image(run.config) if run.trained else 0.0,
            "fingerprint": self.fingerprint(run),
        }

    def _measured(self, run: StudyRun, workplace: Workplace) -> Iterator[tuple[Measure, Result]]:
        """Each column of what the run was pretrained on, with the result that has it."""
        by_set: dict[str, list[Measure]] = defaultdict(list)
        for column in self.measures(run):
            by_set[column.test].append(column)
        for name, columns in by_set.items():
            settings = {column.protocol: dict(column.settings) for column in columns}
            results = {
                result.protocol: result for result in _results(run, workplace, name, settings)
            }
            for column in columns:
                yield column, results[column.protocol]

    def grids(self, measured: Mapping[str, Measured]) -> dict[str, Grid]:
        """Scores, how far they are ahead of the baseline, and budgets."""
        by_row: dict[str, list[Measured]] = defaultdict(list)
        for result in measured.values():
            if result["row"] in self.paper.rows:  # those of a row that is no more are left
                by_row[result["row"]].append(result)
        grids = {RESULTS: self._scores(by_row)}
        if (ahead := self._ahead(by_row)) is not None:
            baseline = self.paper.rows[self.paper.baseline].title
            grids[f"ahead of {baseline}, in points"] = ahead
        return {**grids, "budgets": self._budgets(by_row)}

    def _scores(self, by_row: Mapping[str, Sequence[Measured]]) -> Grid:
        headings: list[str] = []
        rows = {
            name: [row.title, str(len({result["seed"] for result in by_row[name]}) or "")]
            for name, row in self.paper.rows.items()
        }
        for at, (column, other) in enumerate(self._replaced()):
            if other is not None:
                headings += [other.title, f"paper: {column.title}"]
                for name, row in self.paper.rows.items():
                    rows[name] += [_cell(other, by_row[name]), _number(row.published[at])]
        return Grid(("method", "seeds", *headings), tuple(map(tuple, rows.values())))

    def _ahead(self, by_row: Mapping[str, Sequence[Measured]]) -> Grid | None:
        rows = []
        for name, row in self.paper.rows.items():
            if name == self.paper.baseline or not row.recipe:
                continue
            baseline = by_row[self.paper.baseline]
            cells = [_ahead_of(column, by_row[name], baseline) for column in self.columns()]
            if any(cells):
                rows.append((row.title, *cells))
        titles = (column.title for column in self.columns())
        return Grid(("method", *titles), tuple(rows)) if rows else None

    def _budgets(self, by_row: Mapping[str, Sequence[Measured]]) -> Grid:
        rows: list[tuple[str | float, ...]] = []
        for name, row in self.paper.rows.items():
            by_set: dict[str, list[Measured]] = defaultdict(list)
            for result in by_row[name]:
                by_set[result["on"]].append(result)
            for on, results in by_set.items():
                first = results[0]
                if not row.trained:
                    rows.append((row.title, first["recipe"], "", SETS[on].title, *(0,) * 5))
                    continue
                views = self._changes(row, on).get("views", recipe(first["recipe"]).views)
                rows.append((
                    row.title, first["recipe"], str(views), SETS[on].title, first["epochs"],
                    f"{first['images_seen']:,}", f"{first['flops'] / 1e15:.3g}",
                    cell([result["minutes"] for result in results]), 1,
                ))  # fmt: skip
        columns = ("method", "recipe", "views", "pretrained on", "epochs", "images seen", "PFLOP",
                   "minutes", "trials")  # fmt: skip
        return Grid(columns, tuple(rows))

    def notes(self) -> tuple[str, ...]:
        rows = [f"{row.title}: {row.note}" for row in self.paper.rows.values() if row.note]
        return (
            f"Published: {self.paper.source}.", *self.paper.notes, *rows, *self._changed(),
            self.budget.tuned,
        )  # fmt: skip

    def _changed(self) -> Iterator[str]:
        """Notes on replaced and omitted columns."""
        left_out = [column.title for column, other in self._replaced() if other is None]
        pairs = dict.fromkeys(
            (f"{SETS[before].title} (to pretrain)" if training else SETS[before].title,
             SETS[after].title)
            for column, other in self._replaced()
            if other is not None
            for training, before, after in (
                (True, column.train, other.train), (False, column.test, other.test)
            )
            if before != after
        )  # fmt: skip
        if pairs:
            yield (
                f"The {self.scale} scale has "
                + "; ".join(f"{after} in place of {before}" for before, after in pairs)
                + ". Do not compare its numbers with the paper's: the images differ."
            )
        if self.scale != "paper" and any(
            row.epochs is not None for row in self.paper.rows.values()
        ):
            yield "Epochs in titles are the paper's; the budgets have those of this scale."
        if left_out:
            yield f"Left out at the {self.scale} scale: {', '.join(left_out)}."


def _results(
    run: StudyRun, workplace: Workplace, name: str, settings: dict[str, dict[str, Any]]
) -> list[Result]:
    """What a run, or its encoder as it starts, scores on a set; by protocol its settings."""
    described, folder = SETS[name], workplace.sets / name
    sets = NamedSets(f"{described.layout}{folder}")
    if described.test:
        sets = NamedSets(train=folder / "train", test=folder / described.test)
    if run.trained:
        return workplace.evaluate(
            run.folder.path, sets, list(settings), settings, device=workplace.device, seed=run.seed
        )
    assert run.config is not None
    kind = protocol_class(next(iter(settings))).needs
    data = sets.open(kind, run.config.size, run.seed)
    common = EvaluationSettings(seed=run.seed, protocols=settings)
    return evaluate_encoder(workplace.frozen(run), data, list(settings), common)


def _number(published: float | None) -> str:
    if published is None:
        return ""
    return f"{published:.1f}" if round(published, 1) == published else f"{published:.2f}"


def _having(column: Measure, results: Sequence[Measured]) -> list[Measured]:
    return [result for result in results if column.title in result["scores"]]


def _cell(column: Measure, results: Sequence[Measured]) -> str:
    """The mean and spread over seeds; of one seed its interval over test images."""
    having = _having(column, results)
    text = cell([result["scores"][column.title] for result in having])
    if len(having) == 1 and column.title in having[0]["intervals"]:
        low, high = having[0]["intervals"][column.title]
        return f"{text} [{low:.1f}, {high:.1f}]"
    return text


def _ahead_of(column: Measure, results: Sequence[Measured], others: Sequence[Measured]) -> str:
    having, baseline = _having(column, results), _having(column, others)
    if not {result["seed"] for result in having} & {result["seed"] for result in baseline}:
        return ""
    return str(difference(having, baseline, column.title))
