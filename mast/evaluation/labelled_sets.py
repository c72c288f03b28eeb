"""The labeled sets of an evaluation, and their splits for tuning.

The *pool* is the training set, followed by the validation set if there is one. Tuning fits on part
of the pool and validates on the rest; then the whole pool is fitted with the best settings, and
the test set is scored once.

N images in the pool (while tuning, F of them to fit on and V to choose by), M test images.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast.core.errors import UserError, unknown
from mast.core.files import spelling
from mast.data.canvas import CanvasSet
from mast.data.groups import groups_of
from mast.data.source import UNLABELLED

_log = logging.getLogger("mast")

# Fewer training images than this, without a validation set, are cross-validated.
FEW, FOLDS = 5000, 5
HELD_OUT = 0.1  # share of each class held out of a training set without a validation set
SHOWN = 5  # classes in a message
TESTED = 0.2  # share of each class that is tested in a folder without parts


@dataclass(frozen=True)
class EvaluationData:
    """Three labelled sets and the side, in pixels, at which the encoder sees them."""

    train: CanvasSet
    val: CanvasSet | None  # to choose hyper-parameters by; None holds out 10 % of `train`
    test: CanvasSet  # scored once; empty if a classifier is learned for other images
    size: int
    # What the field reports on this set: "top1" or "mean_per_class", which choose hyper-parameters,
    # or "mAP".
    metric: str = "top1"
    # How one set was split into train and test: by what, the tested share, the seed, and the
    # `image_identity` of the whole set; None for two sets.
    split: Mapping[str, Any] | None = None
    whole: bool = False  # whether `train` is all of a set that has no parts

    @property
    def pool_by_part(self) -> dict[str, CanvasSet]:
        """The sets to learn from, in the order of the pool's positions."""
        return {"train": self.train} | ({} if self.val is None else {"val": self.val})

    @property
    def pool(self) -> tuple[CanvasSet, ...]:
        return tuple(self.pool_by_part.values())

    @property
    def named(self) -> dict[str, CanvasSet]:
        return self.pool_by_part | ({"test": self.test} if len(self.test) else {})

    @property
    def pool_groups(self) -> np.ndarray | None:
        """Numbers of the files of the pool's images; None where each has its own."""
        pool = self.pool_by_part
        return groups_of([f"{part}/{unit}" for part, of in pool.items() for unit in of.units])

    @property
    def files(self) -> dict[str, int]:
        """Number of files, by part, where some have several images."""
        groups = {part: groups_of(images.units) for part, images in self.named.items()}
        return {part: int(of_N.max()) + 1 for part, of_N in groups.items() if of_N is not None}

    @property
    def images(self) -> str:
        """Hash of the test images' names and labels, independent of their size."""
        return image_identity(self.test)

    @property
    def fingerprints(self) -> dict[str, str]:
        return {part: canvases.fingerprint for part, canvases in self.named.items()}


def image_identity(canvases: CanvasSet) -> str:
    """Hash of names and labels of images, independent of their size."""
    return identity(canvases.identifiers, {**canvases.targets, **canvases.multilabels})


def labelled_images(canvases: CanvasSet) -> CanvasSet:
    """The images with a label; a warning counts the others.

    If every image has labels of one kind, kinds that some images lack are left out instead.
    """
    known = {task: label_N != UNLABELLED for task, label_N in canvases.targets.items()}
    partly = [task for task, known_N in known.items() if not known_N.all()]
    if 0 < len(partly) < len(known):
        _log.warning("%s: some images have no label of some kinds, which are left out: %s.",
                     canvases.name, ", ".join(partly))  # fmt: skip
        targets = {task: of for task, of in canvases.targets.items() if task not in partly}
        return replace(canvases, targets=targets)
    known_N = np.logical_and.reduce([*known.values(), np.ones(len(canvases), bool)])
    if known_N.all():
        return canvases
    if not known_N.any():
        return replace(canvases, targets={})
    missing = np.flatnonzero(~known_N)
    _log.warning(
        "%s: images without a label are left out: %d of %d, the first is %s.",
        canvases.name, len(missing), len(canvases), canvases.identifiers[missing[0]],
    )  # fmt: skip
    return canvases.part(np.flatnonzero(known_N))


def identity(names: Iterable[str], labels: Mapping[str, np.ndarray]) -> str:
    """A hash of names and of labels."""
    digest = hashlib.sha256("\n".join(map(spelling, names)).encode())
    for task, values in sorted(labels.items()):
        digest.update(task.encode() + np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:32]


@dataclass(frozen=True)
class Task:
    """One target to predict, with the positions that tuning may use."""

    target: str  # "class" or a factor's name
    classes: tuple[str, ...]
    pool_labels_N: Tensor
    fit_F: Tensor  # positions in the pool to fit on while tuning
    choose_V: Tensor  # positions to choose hyper-parameters by
    test_labels_M: Tensor  # empty if nothing is tested
    test_files_M: Tensor | None = None  # if files have several images
    metric: str = "top1"  # by which hyper-parameters are chosen
    folds: tuple[tuple[Tensor, Tensor], ...] = ()  # of a cross-validation, if there is one

    @property
    def splits(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """The folds, or the one split: positions to fit on, and to choose by."""
        return self.folds or ((self.fit_F, self.choose_V),)

    @property
    def held_out_V(self) -> Tensor:
        """Positions of the images to choose by, in the order of the splits."""
        return torch.cat([choose_V for _, choose_V in self.splits])


def tasks(data: EvaluationData, seed: int, tuned: bool = True) -> list[Task]:
    """The targets that every set of the data carries, checked and split by the seed."""
    return [make_task(data, target, seed, tuned) for target in shared_targets(data)]


def shared_targets(data: EvaluationData) -> list[str]:
    """The names of the targets that every set of the data carries."""
    targets = [canvases.targets for canvases in data.named.values()]
    shared = [target for target in data.train.targets if all(target in of for of in targets)]
    if not shared:
        has = "; ".join(
            f"{part} ({canvases.name}) has {', '.join(canvases.targets) or 'no labels'}"
            for part, canvases in data.named.items()
        )
        objects = "; objects are for svm, detection and segmentation"
        raise UserError(
            "expected sets that share a kind of label, such as folders with one subfolder per "
            f"class, got none: {has}{objects if data.train.multilabels else ''}"
        )
    return shared


def make_task(data: EvaluationData, target: str, seed: int, tuned: bool = True) -> Task:
    """One target, checked and split by the seed.

    `tuned` says whether hyper-parameters will be chosen, which takes images to choose by.
    """
    classes = data.train.classes[target]
    labels = _labels(data, target)
    label_N, folds = labels["train"], list[tuple[np.ndarray, np.ndarray]]()
    if "val" in labels:
        fit_F, choose_V = np.arange(len(label_N)), len(label_N) + np.arange(len(labels["val"]))
    else:
        groups_N = groups_of(data.train.units)
        fit_F, choose_V = hold_out(label_N, seed, groups_N=groups_N)
        if tuned and len(choose_V) == 0:
            of = "" if groups_N is None else " of different files or groups"
            raise UserError(
                f"train: expected two images{of} of some class of {target!r}, one of them to hold "
                "out, got none: give a validation set to choose hyper-parameters by"
            )
        if tuned and len(label_N) < FEW:
            folds = cross_validation(label_N, seed, groups_N=groups_N)
    pool = np.concatenate([labels[part] for part in ("train", "val") if part in labels])
    return Task(
        target=target,
        classes=tuple(classes),
        pool_labels_N=torch.from_numpy(pool),
        fit_F=torch.from_numpy(fit_F),
        choose_V=torch.from_numpy(choose_V),
        test_labels_M=torch.from_numpy(labels.get("test", label_N[:0])),
        test_files_M=tested_files(data),
        metric=data.metric,
        folds=tuple((torch.from_numpy(fit), torch.from_numpy(choose)) for fit, choose in folds),
    )


def one_task(data: EvaluationData, target: str | None, seed: int) -> Task:
    """The target that a classifier predicts; None names the only one."""
    if data.train.multilabels and not data.train.targets:
        raise UserError(
            "data: expected one class per image, as a classifier predicts one, got several per "
            f"image in {data.train.name}"
        )
    found = shared_targets(data)
    if target is None and len(found) > 1:
        raise UserError(
            f"target: expected one of {', '.join(found)}, the targets of {data.train.name}, got "
            "none"
        )
    if target is not None and target not in found:
        raise unknown("target", target, found)
    task = make_task(data, target or found[0], seed)
    if len(task.choose_V) < 2:
        raise UserError(
            "data: expected enough images to hold out two, on which a classifier is measured, "
            f"got too few in {data.train.name}: give more, or a val set"
        )
    return task


def tested_files(data: EvaluationData) -> Tensor | None:
    """Numbers of the files of the test images; None if each has its own file or there is none."""
    groups_M = groups_of(data.test.units)
    return None if groups_M is None else torch.from_numpy(groups_M)


def hold_out(
    labels_N: np.ndarray, seed: int, share: float = HELD_OUT, groups_N: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Split positions by class: `share` of each class, at least one image, is held out.

    A class with a single image, or with a single group of images, keeps it for fitting. Images with
    the same number in `groups_N`, such as the tiles of a scene, stay together; a group of several
    classes counts as one of its first class. Returns the positions to fit on and those held out,
    both in ascending order.
    """
    generator = np.random.default_rng(seed)

    def fold_of(size_G: np.ndarray) -> np.ndarray:
        order_G = generator.permutation(len(size_G))
        before_G = size_G[order_G].cumsum() - size_G[order_G]
        fold_G = np.full(len(size_G), -1)
        fold_G[order_G[:-1][before_G[:-1] < max(1, round(share * size_G.sum()))]] = 0
        return fold_G

    held = _folds(labels_N, groups_N, fold_of) == 0
    return np.flatnonzero(~held), np.flatnonzero(held)


def _folds(
    labels_N: np.ndarray,
    groups_N: np.ndarray | None,
    fold_of: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """The fold that holds out each position, -1 for none; `fold_of` takes the sizes of groups.

    No fold holds out all of a class.
    """
    units_N = np.arange(len(labels_N)) if groups_N is None else groups_N
    _, first_G, group_N = np.unique(units_N, return_index=True, return_inverse=True)
    class_N, fold_N = labels_N[first_G][group_N], np.full(len(labels_N), -1)
    for label in np.unique(class_N):
        members = np.flatnonzero(class_N == label)
        _, group_M, size_G = np.unique(group_N[members], return_inverse=True, return_counts=True)
        if len(size_G) > 1:
            fold_N[members] = fold_of(size_G)[group_M]
    for label in np.unique(labels_N):
        if len(np.unique(fold_N[labels_N == label])) == 1:
            fold_N[np.isin(group_N, group_N[labels_N == label])] = -1
    return fold_N


def cross_validation(
    labels_N: np.ndarray, seed: int, count: int = FOLDS, groups_N: np.ndarray | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Splits of positions in which every image is held out once, each class spread over all.

    A class with a single image, or with a single group of images, keeps it for fitting. Splits that
    hold out no image are left out. Returns for each split what `hold_out` returns.
    """
    generator = np.random.default_rng(seed)

    def fold_of(size_G: np.ndarray) -> np.ndarray:
        first = generator.integers(count)  # so that small classes do not all meet in the first
        return np.asarray((first + generator.permutation(len(size_G)).argsort()) % count)

    fold_N = _folds(labels_N, groups_N, fold_of)
    return [
        (np.flatnonzero(fold_N != fold), np.flatnonzero(fold_N == fold))
        for fold in range(count)
        if (fold_N == fold).any()
    ]


def _labels(data: EvaluationData, target: str) -> dict[str, np.ndarray]:
    """Labels of each part, with classes numbered as in train; other parts may lack classes."""
    classes, label_N = data.train.classes[target], data.train.targets[target]
    trained = {classes[label] for label in np.unique(label_N)}
    if len(trained) == 1:
        raise UserError(
            f"train: expected at least two classes of {target!r}, got only {next(iter(trained))}"
        )
    number, labels = {name: at for at, name in enumerate(classes)}, dict[str, np.ndarray]()
    for part, canvases in data.named.items():
        names, label_N = canvases.classes[target], np.asarray(canvases.targets[target], np.int64)
        if unseen := [name for name in map(names.__getitem__, np.unique(label_N))
                      if name not in trained]:  # fmt: skip
            more = f" and {len(unseen) - SHOWN} more" if len(unseen) > SHOWN else ""
            raise UserError(
                f"{part}: expected only values of {target!r} that train has, got "
                f"{', '.join(map(repr, unseen[:SHOWN]))}{more}: add such training images, or leave "
                "these images out"
            )
        labels[part] = np.array([number.get(name, UNLABELLED) for name in names])[label_N]
    return labels
