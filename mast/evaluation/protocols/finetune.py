"""Fine-tuning on all labels: how far an encoder goes as a start rather than as features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.core.fields import change
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.accuracy import accuracy
from mast.evaluation.intervals import Measured
from mast.evaluation.labelled_sets import EvaluationData, Task, tasks
from mast.evaluation.protocols.evaluator import Evaluator, Learned
from mast.evaluation.tuning import Recipe, Tuned, tune

RECIPES = {
    # Plain transfer: one cosine, crop and flip, the head ten times as fast as the encoder.
    "sgd": Recipe(epochs=50, weight_decay=1e-4),
    # A3 of "ResNet strikes back", trained at 160 pixels. Its RandAugment is replaced by two
    # operators of ours, each of a random magnitude.
    "a3": Recipe(
        optimizer="lamb",
        encoder_lr=0.008,
        head_lr=0.008,
        batch_size=2048,
        epochs=100,
        warmup=5,
        weight_decay=0.02,
        size=160,
        views="mast19",
        compose=2,
        mixup=0.1,
        cutmix=1.0,
        loss="binary",
    ),
}


@final
@dataclass(frozen=True, kw_only=True)
class FineTune(Evaluator[EvaluationData]):
    """Fine-tune the whole encoder with a linear head on all training images.

    Args:
        recipe: "sgd", or "a3" of "ResNet strikes back".
        changes: Fields of the recipe that differ, such as {"epochs": 10}.
        encoder_lrs: Rates of the encoder to choose from on validation, the head's in the recipe's
            ratio to it; with none, that of the recipe is used and nothing is held out.

    Reference:
        Wightman, Touvron, Jégou, ResNet strikes back, 2021, table 2, for A3. "sgd" is in the manner
        of Kornblith et al., Do Better ImageNet Models Transfer Better?, CVPR 2019, section 4.2.
    """

    limits: ClassVar = {"encoder_lrs": "(0, inf)"}

    recipe: Literal["sgd", "a3"] = "sgd"
    changes: dict[str, Any] | None = None
    encoder_lrs: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.resolved().preset()

    def resolved(self) -> Recipe:
        """The recipe with its changes."""
        return change(RECIPES[self.recipe], self.changes or {}, f"setting of recipe {self.recipe}")

    def settings(self) -> dict[str, Any]:
        """With the whole recipe."""
        return {**super().settings(), "resolved": asdict(self.resolved())}

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        for task in tasks(data, self.seed, tuned=bool(self.encoder_lrs)):
            recipe, held_VC = self.choose(encoder, data, task)
            scores_MC = self.learn(encoder, data, task, recipe).scores(data.test)
            yield from self.accuracies(task, scores_MC)
            if held_VC is not None:
                labels_V = task.pool_labels_N[task.choose_V]
                yield f"{task.target}/chosen/encoder_lr", recipe.encoder_lr
                yield f"{task.target}/chosen/validation", accuracy(held_VC, labels_V, task.metric)

    def learn(
        self, encoder: FrozenEncoder, data: EvaluationData, task: Task, recipe: Recipe
    ) -> Tuned:
        """The network of all images of the pool."""
        everything_N = torch.arange(len(task.pool_labels_N))
        title = f"finetune, {task.target}"
        return tune(encoder, data, task, everything_N, recipe, self.seed, title)

    def held_out(
        self, encoder: FrozenEncoder, data: EvaluationData, task: Task, recipe: Recipe
    ) -> Tensor:
        """Scores of the task's `choose_V`, (V, C), by a network of its `fit_F`."""
        title = f"finetune, {task.target}, choosing {recipe.encoder_lr:g}"
        tuned = tune(encoder, data, task, task.fit_F, recipe, self.seed, title)
        return tuned.scores(data.train.subset(task.choose_V) if data.val is None else data.val)

    def choose(
        self, encoder: FrozenEncoder, data: EvaluationData, task: Task
    ) -> tuple[Recipe, Tensor | None]:
        """The recipe with the rate that does best on validation.

        Returns:
            The recipe, and what `held_out` says of it; None where there is nothing to choose.
        """
        recipe = self.resolved()
        if not self.encoder_lrs:
            return recipe, None
        if recipe.encoder_lr == 0:
            raise UserError("encoder_lr is 0, so encoder_lrs cannot keep the head's ratio to it")
        ratio = recipe.head_lr / recipe.encoder_lr
        tried = []
        for rate in self.encoder_lrs:
            candidate = replace(recipe, encoder_lr=rate, head_lr=ratio * rate)
            tried.append((candidate, self.held_out(encoder, data, task, candidate)))
        labels_V = task.pool_labels_N[task.choose_V]
        return max(tried, key=lambda row: accuracy(row[1], labels_V, task.metric))

    def classifier(self, encoder: FrozenEncoder, data: EvaluationData, task: Task) -> Learned:
        """A classifier of the whole pool, to be stored."""
        recipe, scores_VC = self.choose(encoder, data, task)
        chosen = {} if scores_VC is None else {"encoder_lr": recipe.encoder_lr}
        if scores_VC is None:
            scores_VC = self.held_out(encoder, data, task, recipe)
        network = self.learn(encoder, data, task, recipe).network
        labels_V = task.pool_labels_N[task.choose_V]
        return Learned(network.encoder, network.head, scores_VC, labels_V, chosen)
