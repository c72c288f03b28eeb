"""Which classes an image shows: one linear SVM per class on frozen features, scored by mAP.

N images in the pool, M test images, L classes, D dimensions, R test sets of the bootstrap.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from mast.core.display import track
from mast.core.errors import UserError
from mast.core.launch import cores
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.intervals import BOOTSTRAP, Interval, Measured, draws, ends, percentiles
from mast.evaluation.labelled_sets import EvaluationData, tested_files
from mast.evaluation.protocols.evaluator import Evaluator
from mast.search.nearest import directions

RECALLS = torch.linspace(0, 1, 11, dtype=torch.float64)
FEWEST_FILES = 10  # with several images each, below which a bootstrap says too little
_log = logging.getLogger("mast")


@dataclass(frozen=True)
class PresenceTask:
    """Classes, several or none per image: 1 present, 0 absent, -1 unknown."""

    target: str
    classes: tuple[str, ...]
    pool_labels_NL: Tensor  # int8
    pool_groups_N: np.ndarray | None  # files of the images, where some have several
    test_labels_ML: Tensor  # int8
    test_files_M: Tensor | None = None


def presence_tasks(data: EvaluationData) -> list[PresenceTask]:
    """The tasks of several labels per image that every set of the data carries, checked."""
    shared = [
        target
        for target in data.train.multilabels
        if all(target in canvases.multilabels for canvases in data.named.values())
    ]
    if not shared:
        raise UserError(
            f"{data.train.name} and {data.test.name} have no labels of several classes per image. "
            "Give sets with annotated objects, such as voc:FOLDER or coco:FOLDER."
        )
    tasks = []
    for target in shared:
        classes = data.train.classes[target]
        if any(tuple(part.classes[target]) != tuple(classes) for part in data.named.values()):
            raise UserError(f"the classes of {target!r} differ between train and other parts")
        pool_NL = np.concatenate([part.multilabels[target] for part in data.pool])
        test_ML = torch.from_numpy(data.test.multilabels[target])
        groups_N = data.pool_groups
        labels = torch.from_numpy(pool_NL), groups_N, test_ML, tested_files(data)
        tasks.append(PresenceTask(target, tuple(classes), *labels))
    return tasks


class ClassPrecision(NamedTuple):
    """Both definitions, each (R,) in [0, 1].

    Attributes:
        eleven_point: VOC2007: the mean, over recalls of 0, .1, …, 1, of the best precision at that
            recall or a higher one.
        area: VOC2010 and later: the area under the curve of these best precisions.
    """

    eleven_point: Tensor
    area: Tensor


def average_precision(
    score_N: Tensor, present_N: Tensor, count_RN: Tensor | None = None
) -> ClassPrecision:
    """Average precision of one class; images of equal score enter the curve together.

    `count_RN` says how often each image occurs in each test set. NaN for one without the class.

    Reference:
        Everingham et al., The Pascal Visual Object Classes (VOC) Challenge, IJCV 2010, section 4.2,
        and the development kits of 2007 and 2010.
    """
    if count_RN is None:
        count_RN = torch.ones(1, len(score_N))
    order_N = score_N.argsort(descending=True, stable=True)
    sorted_N = score_N[order_N]
    last_N = torch.ones(len(score_N), dtype=torch.bool)
    last_N[:-1] = sorted_N[:-1] != sorted_N[1:]  # its equals before it are no point of the curve
    count_RN = count_RN[:, order_N].double()
    found_RN = (count_RN * present_N[order_N]).cumsum(dim=1)
    ranked_RN = count_RN.cumsum(dim=1)
    precision_RN = (found_RN / ranked_RN.clamp(min=1)) * last_N
    best_RN = precision_RN.flip(1).cummax(dim=1).values.flip(1)
    recall_RN = found_RN / found_RN[:, -1:]  # 0 / 0 where the class is not shown
    gained_RN = recall_RN.diff(dim=1, prepend=torch.zeros_like(recall_RN[:, :1]))
    area_R = (gained_RN * best_RN).sum(dim=1)
    # The first place with at least that recall; rounding must not push it one further.
    at_R11 = torch.searchsorted(recall_RN, RECALLS.expand(len(recall_RN), -1) - 1e-9)
    eleven_R = best_RN.gather(1, at_R11.clamp(max=len(score_N) - 1)).mean(dim=1)
    return ClassPrecision(torch.where(area_R.isnan(), area_R, eleven_R), area_R)


class Ranked(NamedTuple):
    """One class's scores of the test images, which of them have a known label, which show it.

    `cost` is None where there were too few images to choose it.
    """

    name: str
    score_M: Tensor
    known_M: Tensor
    present_M: Tensor
    cost: float | None
    converged: bool


@final
@dataclass(frozen=True, kw_only=True)
class Svm(Evaluator[EvaluationData]):
    """The VOC07 protocol: for each class a linear SVM on L2-normalised features.

    The cost of each class is chosen by cross-validation on the pool, by the mean of scikit-learn's
    average precision over the folds; then the SVM is fitted to the whole pool. Images whose label
    of a class is unknown (all its objects are difficult) are left out, in the pool and in the test
    set. Pieces of one file stay together, and the bootstrap draws files. A class that no image or
    every image of the pool or of the test set shows is left out of the mean, as its average
    precision says nothing; one with a single image in the pool gets `default_cost`, as nothing can
    be held out.

    Args:
        costs: Values of C to choose from.
        folds: Of the cross-validation; fewer for a class with fewer images.
        positive_weight: Weight of the images that show the class; the others have 1.
        max_iterations: Of liblinear.
        default_cost: C where nothing can be chosen.

    Reference:
        Goyal et al., Scaling and Benchmarking Self-Supervised Visual Representation Learning, ICCV
        2019, section 6.1; its code, and VISSL's `svm_trainer.py`.
    """

    limits: ClassVar = {
        "costs": "(0, inf)", "positive_weight": "(0, inf)", "default_cost": "(0, inf)",
        "folds": "(1, inf)", "max_iterations": "(0, inf)",
    }  # fmt: skip

    costs: tuple[float, ...] = (0.01, 0.1, 1, 2, 5, 10, 15, 20, 50, 100, 1000)
    folds: int = 3
    positive_weight: float = 2.0
    max_iterations: int = 2000
    default_cost: float = 1.0

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """See `Evaluator.run`.

        Yields:
            `map_11_point` (the VOC2007 definition) and `map_area` with their intervals over images,
            and `map_11_point/<class>` and `map_area/<class>`.
        """
        pool_ND = directions(encoder.pool_features(data.pool, data.size)).numpy()
        test_MD = directions(encoder.features(data.test, data.size)).numpy()
        for task in presence_tasks(data):
            yield from self._measure(task, pool_ND, test_MD)

    def _measure(
        self, task: PresenceTask, pool_ND: np.ndarray, test_MD: np.ndarray
    ) -> Iterator[Measured]:
        from sklearn.exceptions import ConvergenceWarning

        labels = [label for label in range(len(task.classes)) if _can_be_scored(task, label)]
        if not labels:
            raise UserError(
                f"no class of {task.target!r} is shown by some images and not shown by others, "
                "both in the training and in the test set. Give more images."
            )
        with warnings.catch_warnings(), ThreadPoolExecutor(cores()) as threads:
            warnings.simplefilter("ignore", ConvergenceWarning)  # counted below
            work = threads.map(lambda label: self._rank(task, label, pool_ND, test_MD), labels)
            ranked = list(track(work, f"fitting {task.target}", len(labels), "classes"))
        unconverged = sum(not each.converged for each in ranked)
        if unconverged:
            _log.warning(
                "%d of %d SVMs of %s did not converge in %d iterations",
                unconverged, len(ranked), task.target, self.max_iterations,
            )  # fmt: skip
        file_M = torch.arange(len(test_MD)) if task.test_files_M is None else task.test_files_M
        for measure, resampled_R, of_class in self._precisions(ranked, file_M):
            yield f"{task.target}/{measure}", 100 * float(np.mean(of_class))
            if task.test_files_M is None or file_M.max() + 1 >= FEWEST_FILES:
                yield from resampled(task.target, measure, resampled_R)
            for each, value in zip(ranked, of_class, strict=True):
                yield f"{task.target}/{measure}/{each.name}", 100 * value
        yield f"{task.target}/chosen/classes", len(ranked)
        costs = [each.cost for each in ranked if each.cost is not None]
        if costs:
            yield f"{task.target}/chosen/median_cost", float(np.median(costs))

    def _rank(
        self, task: PresenceTask, label: int, pool_ND: np.ndarray, test_MD: np.ndarray
    ) -> Ranked:
        """Choose the cost of one class, fit the pool, score the test images."""
        from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold, StratifiedKFold
        from sklearn.svm import LinearSVC

        label_N = task.pool_labels_NL[:, label].numpy()
        known_N = label_N >= 0
        x_FD, y_F = pool_ND[known_N], np.where(label_N[known_N] == 1, 1, -1)
        groups_N = task.pool_groups_N
        group_F = np.arange(len(y_F)) if groups_N is None else groups_N[known_N]
        folds = min([self.folds, *(len(np.unique(group_F[y_F == kind])) for kind in (1, -1))])
        svm = LinearSVC(
            C=self.default_cost,
            class_weight={1: self.positive_weight, -1: 1.0},
            dual=True,
            max_iter=self.max_iterations,
            random_state=self.seed,
        )
        cost = None
        if folds > 1:
            kind = StratifiedKFold if groups_N is None else StratifiedGroupKFold
            splits = list(kind(folds).split(x_FD, y_F, None if groups_N is None else group_F))
            search = GridSearchCV(svm, {"C": self.costs}, scoring="average_precision", cv=splits)
            svm = search.fit(x_FD, y_F).best_estimator_
            cost = search.best_params_["C"]
        else:
            svm.fit(x_FD, y_F)
        label_M = task.test_labels_ML[:, label]
        return Ranked(
            name=task.classes[label],
            score_M=torch.from_numpy(svm.decision_function(test_MD)),
            known_M=label_M >= 0,
            present_M=label_M == 1,
            cost=cost,
            converged=bool(np.max(svm.n_iter_) < self.max_iterations),
        )

    def _precisions(
        self, ranked: list[Ranked], file_M: Tensor
    ) -> Iterator[tuple[str, Tensor, list[float]]]:
        """For each definition: its name, the mean on every drawn test set, and each class's.

        Files are drawn, with all of their images.
        """
        once = [
            average_precision(each.score_M[each.known_M], each.present_M[each.known_M])
            for each in ranked
        ]
        resampled_LR: dict[str, list[Tensor]] = {"eleven_point": [], "area": []}
        for each in ranked:
            known = (each.score_M[each.known_M], each.present_M[each.known_M])
            parts = []
            for index_RF in draws(int(file_M.max()) + 1, self.seed, self.resamples):
                one_RF = torch.ones(index_RF.shape)
                count_RF = torch.zeros_like(one_RF).scatter_add_(1, index_RF, one_RF)
                parts.append(average_precision(*known, count_RF[:, file_M[each.known_M]]))
            for name, rows in resampled_LR.items():
                rows.append(torch.cat([getattr(part, name) for part in parts]))
        for measure, name in (("map_11_point", "eleven_point"), ("map_area", "area")):
            # A drawn test set that lacks a class says nothing of it.
            mean_R = torch.stack(resampled_LR[name]).nanmean(dim=0)
            yield measure, mean_R[~mean_R.isnan()], [float(getattr(ap, name)) for ap in once]


def _can_be_scored(task: PresenceTask, label: int) -> bool:
    """Whether a class can be learned and scored."""
    label_N, label_M = task.pool_labels_NL[:, label], task.test_labels_ML[:, label]
    return all(bool((of == label).any()) for of in (label_N, label_M) for label in (0, 1))


def resampled(target: str, measure: str, value_R: Tensor) -> Iterator[Measured]:
    """The value of a measure that is no mean over units on each drawn test set, value_R with 1
    for 100 %, and its interval if the draws differ."""
    low, high = percentiles(value_R)
    if low < high:
        yield from ends(target, measure, Interval(low, high, BOOTSTRAP))
    yield f"{target}/draws/{measure}", value_R
