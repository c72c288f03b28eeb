"""A linear classifier trained by SGD on augmented views of a frozen encoder.

R learning rates are tried side by side on the same representations, so a sweep costs one pass of
the encoder. B images a batch, D dimensions, C classes, N images in the pool.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.augment import Pipeline, Preset
from mast.core.display import track
from mast.core.errors import UserError
from mast.evaluate.accuracy import accuracies, top1
from mast.evaluate.data import EvaluationData, Task, tasks
from mast.evaluate.features import FrozenEncoder, evaluating, represent
from mast.evaluate.protocol import Evaluator

if TYPE_CHECKING:
    from mast.data.canvas import CanvasSet

TRAINING_VIEW = Preset(("random_resized_crop", "horizontal_flip"))


class TrainingViews:
    """Randomly cropped and flipped views of the images of a pool.

    Args:
        pool: Sets whose images are numbered one after the other.
        size: Side of the views in pixels.
        generator: CPU generator of the crops and flips.
    """

    def __init__(self, pool: tuple[CanvasSet, ...], size: int, generator: torch.Generator) -> None:
        self.pool = pool
        self.pipeline = Pipeline(TRAINING_VIEW, size)
        self.generator = generator

    def __call__(self, positions_B: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """Views of some images, grouped by set since sets may differ in the size of a canvas.

        Args:
            positions_B: Positions in the pool.
            device: Where to draw the pixels.

        Returns:
            images_BCHW in [0, 1], and the positions in the order of the images.
        """
        images, positions, first = [], [], 0
        for canvas_set in self.pool:
            inside_B = (positions_B >= first) & (positions_B < first + len(canvas_set))
            mine_B = positions_B[inside_B]
            if len(mine_B) > 0:
                canvas_BHWC, aspect_B = canvas_set.batch(mine_B - first)
                record, _ = self.pipeline.draw(len(mine_B), self.generator)
                images.append(self.pipeline.apply(canvas_BHWC.to(device), aspect_B, record, view=0))
                positions.append(mine_B)
            first += len(canvas_set)
        return torch.cat(images), torch.cat(positions)


@dataclass(frozen=True, kw_only=True)
class LinearSgd(Evaluator):
    """The linear probe of large sets: SGD with momentum and a cosine, crop and flip in training.

    With one learning rate nothing is tuned and the whole pool is trained on at once; with several,
    validation chooses one, which then trains on the whole pool from the start. Features are used as
    they come: on a small set, or where they are small beside their mean, the steps at .02 are too
    few and short to leave chance. Sweep the learning rate there, or use `linear`.

    Args:
        learning_rates: At the start of the cosine.
        epochs: Passes over the images.
        batch_size: Images in a step.
        momentum: Of SGD.
        weight_decay: Of SGD.

    Reference:
        Chen and He, Exploring Simple Siamese Representation Learning, CVPR 2021, appendix A, for
        the shape of it; the numbers are those of the MAST paper's linear evaluation.
    """

    learning_rates: tuple[float, ...] = (0.02,)
    epochs: int = 100
    batch_size: int = 256
    momentum: float = 0.9
    weight_decay: float = 1e-6

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[tuple[str, float]]:
        """See `Evaluator.run`."""
        test_MD = encoder.features(data.test, data.size)
        for task in tasks(data, self.seed):
            rate, accuracy = self._choose(encoder, data, task)
            everything_N = torch.arange(len(task.pool_labels_N))
            (head,) = self._train(encoder, data, task, everything_N, (rate,))
            yield from accuracies(
                task.target, head(test_MD), task.test_labels_M, self.seed, self.resamples
            )
            if accuracy is not None:
                yield f"{task.target}/chosen/learning_rate", rate
                yield f"{task.target}/chosen/validation_top1", accuracy

    def _choose(
        self, encoder: FrozenEncoder, data: EvaluationData, task: Task
    ) -> tuple[float, float | None]:
        """The learning rate, and its validation accuracy where there was a choice."""
        if len(self.learning_rates) == 1:
            return self.learning_rates[0], None
        heads = self._train(encoder, data, task, task.fit_F, self.learning_rates)
        val_VD = encoder.pool_features(data.pool, data.size)[task.choose_V]
        labels_V = task.pool_labels_N[task.choose_V]
        tried = [
            (rate, top1(head(val_VD), labels_V))
            for rate, head in zip(self.learning_rates, heads, strict=True)
        ]
        return max(tried, key=lambda row: row[1])

    def _train(
        self,
        encoder: FrozenEncoder,
        data: EvaluationData,
        task: Task,
        positions_N: Tensor,
        rates: tuple[float, ...],
    ) -> list[nn.Linear]:
        """One head a learning rate, all trained on the same views; on the CPU, frozen."""
        generator = torch.Generator().manual_seed(self.seed)
        views = TrainingViews(data.pool, data.size, generator)
        labels_N = task.pool_labels_N.to(encoder.device)
        heads: list[nn.Linear] = []
        steps = self.epochs * math.ceil(len(positions_N) / self.batch_size)
        step = 0
        with evaluating(encoder.module):
            for _ in track(range(self.epochs), f"linear_sgd on {task.target}", self.epochs):
                order_N = positions_N[torch.randperm(len(positions_N), generator=generator)]
                for drawn_B in order_N.split(self.batch_size):
                    images_BCHW, batch_B = views(drawn_B, encoder.device)
                    with torch.no_grad():
                        x_BD = represent(encoder.module, images_BCHW, encoder.dtype)
                    if not heads:
                        heads = [zero_head(x_BD, len(task.classes)) for _ in rates]
                        optimizer = self._optimizer(heads, rates)
                    for group, rate in zip(optimizer.param_groups, rates, strict=True):
                        group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
                    target_B = labels_N[batch_B.to(labels_N.device)]
                    losses_R = torch.stack([F.cross_entropy(h(x_BD), target_B) for h in heads])
                    if not torch.isfinite(losses_R).all():
                        raise UserError(
                            f"the loss of linear_sgd on {task.target!r} is not finite at step "
                            f"{step} (learning rates {rates}). Lower the learning rate."
                        )
                    optimizer.zero_grad()
                    losses_R.sum().backward()
                    optimizer.step()
                    step += 1
        return [head.cpu().requires_grad_(False) for head in heads]

    def _optimizer(self, heads: list[nn.Linear], rates: tuple[float, ...]) -> torch.optim.SGD:
        groups = [
            {"params": head.parameters(), "lr": rate}
            for head, rate in zip(heads, rates, strict=True)
        ]
        return torch.optim.SGD(groups, momentum=self.momentum, weight_decay=self.weight_decay)


def zero_head(x_BD: Tensor, classes: int) -> nn.Linear:
    """A linear head of zeros; the problem is convex, so it needs no random start."""
    head = nn.Linear(x_BD.shape[1], classes, device=x_BD.device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head
