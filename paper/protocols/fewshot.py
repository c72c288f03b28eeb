"""How far a few labelled images go: a few of each class, and episodes of a few classes.

N images in the pool, M test images, D dimensions, C classes, K labelled images per class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from mast.core.display import track
from mast.core.errors import UserError
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.accuracy import accuracy, chance_level
from mast.evaluation.intervals import Measured, ends, student_interval
from mast.evaluation.labelled_sets import EvaluationData, Task, tasks
from mast.evaluation.logistic import Whitened
from mast.evaluation.protocols.evaluator import features_of
from mast.evaluation.protocols.probe import Probe


@final
@dataclass(frozen=True, kw_only=True)
class FewShot(Probe):
    """Two ways to have few labels.

    *A few of each class*: the linear probe is fitted to K images of every class, drawn `repeats`
    times; the penalty is chosen on validation at the first draw and kept. *Episodes*: `ways`
    classes are drawn, of each `support` labelled images and `queries` others, all from the test
    set; a logistic regression (one class against the rest, as in AugSelf's code, C = 1) learns from
    the former and is scored on the latter, which are of other files. Intervals are Student's t,
    over draws and over episodes, of these test images; one draw has none. The other settings are
    those of `linear`.

    Args:
        shots: Values of K.
        repeats: Draws of K images per class.
        ways: Classes of an episode; fewer where there are not that many.
        support: Labelled images per class of an episode.
        queries: Images a class that are scored; drawn again where a class has fewer.
        episodes: How many; 0 for none.

    Reference:
        MAST, section 4 (5 and 10 labelled images per class); AugSelf (Lee et al., NeurIPS 2021),
        section 4.1 and its code, for the episodes.
    """

    limits: ClassVar = {
        **dict.fromkeys(("shots", "repeats", "support", "queries"), "(0, inf)"), "ways": "(1, inf)",
    }  # fmt: skip

    shots: tuple[int, ...] = (5, 10)
    repeats: int = 10
    ways: int = 5
    support: tuple[int, ...] = (1, 5)
    queries: int = 16
    episodes: int = 2000

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """See `Evaluator.run`; `<K>_a_class` and `<ways>_way_<K>_shot`, each with an interval."""
        pool_ND, test_MD = features_of(encoder, data)
        for task in tasks(data, self.seed):
            for shots in self.shots:
                yield from self._a_class(task, shots, pool_ND, test_MD)
            for support in self.support if self.episodes else ():
                yield from self._episodes(task, support, test_MD)

    def _a_class(
        self, task: Task, shots: int, pool_ND: Tensor, test_MD: Tensor
    ) -> Iterator[Measured]:
        labels_N = task.pool_labels_N
        test_labels_M = task.test_labels_M.to(pool_ND.device)
        generator = np.random.default_rng((self.seed, shots))
        penalty, validation = 0.0, 0.0
        accuracies: list[float] = []
        for _ in track(range(self.repeats), f"{shots} a class", self.repeats, "draws", even=False):
            drawn = draw_a_class(labels_N[task.fit_F].numpy(), shots, generator, task)
            few_F = task.fit_F[torch.from_numpy(drawn)]
            if not accuracies:
                whitened = Whitened.of(pool_ND, few_F.to(pool_ND.device))
                penalty, validation = self.choose(whitened, task, [(few_F, task.choose_V)])
            whitened = Whitened.of(pool_ND[few_F.to(pool_ND.device)])
            classifier = self.fit(whitened, labels_N[few_F], penalty, task)
            accuracies.append(accuracy(classifier.scores(test_MD), test_labels_M, task.metric))
        yield from interval(task.target, f"{shots}_a_class", accuracies)
        by_chance = chance_level(task.test_labels_M, task.metric)
        yield f"{task.target}/by_chance/{shots}_a_class", by_chance
        yield f"{task.target}/chosen/penalty_{shots}", penalty
        yield f"{task.target}/chosen/validation_{shots}", validation

    def _episodes(self, task: Task, support: int, test_MD: Tensor) -> Iterator[Measured]:
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier

        features_MD, labels_M = test_MD.cpu().numpy(), task.test_labels_M.numpy()
        members = [np.flatnonzero(labels_M == label) for label in range(len(task.classes))]
        files_M = task.test_files_M
        file_M = np.arange(len(labels_M)) if files_M is None else files_M.numpy()
        members = [of for of in members if len(np.unique(file_M[of])) > support]
        ways = min(self.ways, len(members))
        if ways < 2:
            images = "test images" if files_M is None else "files of test images"
            raise UserError(
                f"episodes of {support} labelled images need two classes of {task.target!r} with "
                f"more than {support} {images}. Set a smaller `support` of fewshot, or episodes=0."
            )
        generator = np.random.default_rng((self.seed, support))
        accuracies = []
        name = f"{ways}_way_{support}_shot"
        for _ in track(range(self.episodes), f"{name} on {task.target}", self.episodes, "episodes"):
            chosen = generator.choice(len(members), ways, replace=False)
            support_set, query_set = [], []
            for positions in (generator.permutation(members[label]) for label in chosen):
                learned, rest = positions[:support], positions[support:]
                rest = rest[~np.isin(file_M[rest], file_M[learned])]
                support_set.append(learned)
                query_set.append(
                    rest[: self.queries]
                    if len(rest) >= self.queries
                    else generator.choice(rest, self.queries)
                )
            classifier = OneVsRestClassifier(LogisticRegression(solver="liblinear", random_state=0))
            truth = np.arange(ways)
            classifier.fit(features_MD[np.concatenate(support_set)], truth.repeat(support))
            predicted = classifier.predict(features_MD[np.concatenate(query_set)])
            accuracies.append(100 * float(np.mean(predicted == truth.repeat(self.queries))))
        yield from interval(task.target, name, accuracies)
        yield f"{task.target}/by_chance/{name}", 100 / ways


def draw_a_class(
    labels_N: np.ndarray, shots: int, generator: np.random.Generator, task: Task
) -> np.ndarray:
    """Positions of `shots` images of every class, ascending."""
    drawn = []
    for label, name in enumerate(task.classes):
        members = np.flatnonzero(labels_N == label)
        if 0 < len(members) < shots:
            raise UserError(
                f"{name!r} of {task.target!r} has {len(members)} training images beside those that "
                f"choose hyper-parameters, fewer than {shots}. Set smaller `shots` of fewshot."
            )
        drawn.append(generator.permutation(members)[:shots])
    return np.sort(np.concatenate(drawn))


def interval(target: str, measure: str, accuracies: list[float]) -> Iterator[Measured]:
    """The mean of several accuracies in percent, its interval if there is one, and each."""
    each_D = torch.tensor(accuracies, dtype=torch.float64) / 100
    yield f"{target}/{measure}", 100 * float(each_D.mean())
    if (found := student_interval(each_D, least=0)) is not None:
        yield from ends(target, measure, found)
    yield f"{target}/each/{measure}", each_D.float()
