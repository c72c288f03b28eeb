"""Which of four ways up an image is: what an encoder keeps of orientation.

N images in the pool, M test images, D dimensions; four copies of each, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import torch

from mast.core.errors import UserError
from mast.data.groups import groups_of
from mast.encoders.changes import Change
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.accuracy import correct_within
from mast.evaluation.intervals import Measured
from mast.evaluation.labelled_sets import EvaluationData, Task, hold_out, tested_files
from mast.evaluation.protocols.probe import Probe

ANGLES = (0, 90, 180, 270)
TARGET = "rotation"


def rotated_by(angle: int) -> Change | None:
    """Views turned by a multiple of 90 degrees, counterclockwise; None for those as they are."""
    if angle == 0:
        return None
    return Change(f"turned by {angle}", lambda images, _: images.rot90(angle // 90, (2, 3)))


@final
@dataclass(frozen=True, kw_only=True)
class Rotation(Probe):
    """The 4-way rotation probe: the linear probe predicts each image's rotation.

    Chance is 25 %. The sets need no labels. All copies of an image stay on one side of the split
    that chooses the penalty, and intervals are over images. The settings are those of `linear`.

    Reference:
        Gidaris, Singh, Komodakis, Unsupervised Representation Learning by Predicting Image
        Rotations, ICLR 2018, for the task.
    """

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """See `Evaluator.run`; one target, "rotation"."""
        changes = [rotated_by(angle) for angle in ANGLES]
        pool_ND = torch.cat(
            [encoder.features(each, data.size, change) for change in changes for each in data.pool]
        )
        test_MD = torch.cat([encoder.features(data.test, data.size, c) for c in changes])
        task = self._task(data)
        (learned,) = self.learn(pool_ND.to(encoder.device), [task])
        scores_MC = learned.classifier.scores(test_MD).cpu()
        credit_M = correct_within(scores_MC, task.test_labels_M, k=1).double()
        credit_M = credit_M.view(len(ANGLES), -1).mean(dim=0)  # an image's is that of its copies
        for measure in ("top1", "mean_per_class"):  # each image is in every class once
            yield from self.measured(task, measure, credit_M)
            yield f"{TARGET}/by_chance/{measure}", 100 / len(ANGLES)
        yield from self.chosen(task, learned)

    def _task(self, data: EvaluationData) -> Task:
        count = len(data.train)
        if data.val is None:
            files_F = groups_of(data.train.units)
            fit_F, choose_V = hold_out(np.zeros(count, np.int64), self.seed, groups_N=files_F)
            if not len(choose_V):
                raise UserError(
                    "one file of images to learn from leaves none to choose hyper-parameters by. "
                    "Give a validation set."
                )
        else:
            fit_F, choose_V = np.arange(count), count + np.arange(len(data.val))
        everything = sum(map(len, data.pool))
        starts_41 = everything * torch.arange(len(ANGLES))[:, None]
        turns = torch.arange(len(ANGLES))
        return Task(
            target=TARGET,
            classes=tuple(f"{angle} degrees" for angle in ANGLES),
            pool_labels_N=turns.repeat_interleave(everything),
            fit_F=(starts_41 + torch.from_numpy(fit_F)).flatten(),
            choose_V=(starts_41 + torch.from_numpy(choose_V)).flatten(),
            test_labels_M=turns.repeat_interleave(len(data.test)),
            test_files_M=tested_files(data),
        )
