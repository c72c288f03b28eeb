"""A linear classifier trained by SGD on augmented views of a frozen encoder.

All targets, and all learning rates that are tried, share the same representations: a sweep costs
one pass of the encoder. B images per batch, D dimensions, C classes, N images in the pool, T tasks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.core.loop import Losses, Training
from mast.core.optim import OptimizerConfig, make_optimizer, to_zero
from mast.encoders.extract import represent
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.accuracy import accuracy
from mast.evaluation.intervals import Measured
from mast.evaluation.labelled_sets import EvaluationData, Task, tasks
from mast.evaluation.protocols.evaluator import Evaluator
from mast.evaluation.training_views import LabelledBatch, TrainingViews
from mast.models.encoders import evaluating


@final
@dataclass(frozen=True, kw_only=True)
class LinearSgd(Evaluator[EvaluationData]):
    """The linear probe of large sets: SGD with momentum and a cosine, crop and flip in training.

    With one learning rate nothing is tuned and the whole pool is trained on at once; with several,
    validation chooses one, which then trains on the whole pool from the start. Features are used as
    they come: on a small set, or if they are small relative to their mean, steps at .02 are too
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

    limits: ClassVar = {
        **dict.fromkeys(("epochs", "batch_size", "learning_rates"), "(0, inf)"),
        "momentum": "[0, 1]",
    }

    learning_rates: tuple[float, ...] = (0.02,)
    epochs: int = 100
    batch_size: int = 256
    momentum: float = 0.9
    weight_decay: float = 1e-6

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        targets = tasks(data, self.seed, tuned=len(self.learning_rates) > 1)
        test_MD = encoder.features(data.test, data.size)
        chosen = self._choose(encoder, data, targets)
        heads = self._train(encoder, data, targets, [(rate,) for rate, _ in chosen], tuning=False)
        for task, (head,), (rate, validation) in zip(targets, heads, chosen, strict=True):
            scores_MC = head(test_MD)
            yield from self.accuracies(task, scores_MC)
            if validation is not None:
                yield f"{task.target}/chosen/learning_rate", rate
                yield f"{task.target}/chosen/validation", validation

    def _choose(
        self, encoder: FrozenEncoder, data: EvaluationData, targets: list[Task]
    ) -> list[tuple[float, float | None]]:
        """For each task the learning rate, and its validation accuracy where there was a choice."""
        if len(self.learning_rates) == 1:
            return [(self.learning_rates[0], None) for _ in targets]
        rates = [self.learning_rates] * len(targets)
        heads = self._train(encoder, data, targets, rates, tuning=True)
        pool_ND = encoder.pool_features(data.pool, data.size)
        chosen: list[tuple[float, float | None]] = []
        for task, task_heads in zip(targets, heads, strict=True):
            val_VD, labels_V = pool_ND[task.choose_V], task.pool_labels_N[task.choose_V]
            tried = [
                (rate, accuracy(head(val_VD), labels_V, task.metric))
                for rate, head in zip(self.learning_rates, task_heads, strict=True)
            ]
            chosen.append(max(tried, key=lambda row: row[1]))
        return chosen

    def _train(
        self,
        encoder: FrozenEncoder,
        data: EvaluationData,
        targets: list[Task],
        rates: list[tuple[float, ...]],
        tuning: bool,
    ) -> list[list[nn.Linear]]:
        """The heads of each task, one a learning rate, all trained on the same views, on the CPU.

        While tuning, a head learns from the images of its task's `fit_F`, which may differ between
        tasks, and from the whole pool otherwise.
        """
        bench, pool = encoder.bench, sum(map(len, data.pool))
        learns_NT = torch.full((pool, len(targets)), not tuning)
        if tuning:
            for column, task in enumerate(targets):
                learns_NT[task.fit_F, column] = True
        learns_NT = learns_NT.to(encoder.device)
        labels_NT = torch.stack([task.pool_labels_N for task in targets], dim=1).to(encoder.device)
        views = TrainingViews(
            data.pool,
            learns_NT.any(dim=1).nonzero().squeeze(1).cpu(),
            data.size,
            batch_size=self.batch_size,
            seed=self.seed,
            dtype=encoder.compute.dtype,
        )
        dim = encoder.features(data.test, data.size).shape[1]
        heads = [
            [nn.Linear(dim, len(task.classes)) for _ in task_rates]
            for task, task_rates in zip(targets, rates, strict=True)
        ]
        for parameter in itertools.chain(*(head.parameters() for row in heads for head in row)):
            nn.init.zeros_(parameter)  # the problem is convex
        groups = [
            {"name": "weights", "params": list(head.parameters()), "peak_lr": rate}
            for task_heads, task_rates in zip(heads, rates, strict=True)
            for head, rate in zip(task_heads, task_rates, strict=True)
        ]
        config = OptimizerConfig("sgd", weight_decay=self.weight_decay, momentum=self.momentum)
        training = Training(
            Heads(heads),
            make_optimizer(groups, config, self.batch_size),
            epochs=self.epochs,
            steps_per_epoch=views.steps_per_epoch,
            rate=to_zero(self.epochs * views.steps_per_epoch),
            checkpoint=encoder.unfinished(self, data, tuning=tuning, rates=rates),
            advice=f"Lower the learning rates {rates[0]} of linear_sgd.",
        )

        def loss(module: Any, batch: LabelledBatch, step: int, part: int) -> Losses:
            with torch.no_grad():
                x_BD = represent(encoder.module, batch.images_BCHW, encoder.compute.dtype)
            learns_BT, labels_BT = learns_NT[batch.positions_B], labels_NT[batch.positions_B]
            total = x_BD.new_zeros(())
            for column, task_heads in enumerate(module(x_BD)):
                weight_B = learns_BT[:, column].float() / batch.total
                for scores_BC in task_heads:
                    each_B = F.cross_entropy(scores_BC, labels_BT[:, column], reduction="none")
                    total = total + (each_B * weight_B).sum()
            return {"loss": total * bench.fabric.world_size}  # gradients are averaged over them

        with evaluating(encoder.module):
            bench.fit(
                training,
                lambda epoch, start: views.epoch(bench.fabric, epoch, start),
                loss,
                "linear_sgd, choosing" if tuning else "linear_sgd",
                self.seed,
            )
        return [[head.cpu().requires_grad_(False) for head in task_heads] for task_heads in heads]


class Heads(nn.Module):
    """The heads of several tasks side by side."""

    def __init__(self, heads: list[list[nn.Linear]]) -> None:
        super().__init__()
        self.task_heads = heads
        self.heads = nn.ModuleList(head for task_heads in heads for head in task_heads)

    def forward(self, x_BD: Tensor) -> list[list[Tensor]]:
        """Scores (B, C) of each head of each task."""
        return [[head(x_BD) for head in task_heads] for task_heads in self.task_heads]
