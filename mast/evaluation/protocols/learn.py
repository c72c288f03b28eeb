"""What a protocol learns of labelled images, to be kept: a head, and how well it does.

N images in the pool, V of them held out, D dimensions of the representation, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from mast.core.errors import UserError, unknown
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData, Task, make_task, shared_targets
from mast.evaluation.protocols.finetune import FineTune
from mast.evaluation.protocols.probe import Linear
from mast.evaluation.protocols.run import EvaluationSettings, make_evaluator

Kind = Literal["linear", "finetune"]


class Learned(NamedTuple):
    """A classifier of the whole pool, and what one like it says of images that it has not seen."""

    encoder: nn.Module  # from images to (B, D): as it was, or fine-tuned
    head: nn.Linear  # from there to scores (B, C)
    scores_VC: Tensor  # of held-out images, by a classifier that did not learn from them
    labels_V: Tensor  # their classes
    chosen: dict[str, float]  # hyper-parameters that were chosen by them
    settings: dict[str, Any]  # of the protocol


def one_task(data: EvaluationData, target: str | None, seed: int) -> Task:
    """The target that a classifier is to tell; its name may be left out where there is one."""
    if data.train.multilabels and not data.train.targets:
        raise UserError(
            f"{data.train.name} has labels of several classes per image, and a classifier tells "
            "one: give a set with one class an image"
        )
    found = shared_targets(data)
    if target is None and len(found) > 1:
        raise UserError(
            f"{data.train.name} has several targets: give target, one of {', '.join(found)}"
        )
    if target is not None and target not in found:
        raise unknown("target", target, found)
    task = make_task(data, target or found[0], seed)
    if len(task.choose_V) < 2:
        raise UserError(
            f"{data.train.name} has too few images to hold two out, by which a classifier is "
            "judged: give more, or a val set"
        )
    return task


def learn(
    kind: Kind,
    encoder: FrozenEncoder,
    data: EvaluationData,
    task: Task,
    seed: int,
    settings: Mapping[str, Any],
) -> Learned:
    """Learn a classifier by "linear" or "finetune", with its settings, from the whole pool."""
    protocol = make_evaluator(kind, EvaluationSettings(seed, {kind: settings}))
    if isinstance(protocol, FineTune):
        return _fine_tuned(protocol, encoder, data, task)
    assert isinstance(protocol, Linear), kind
    pool_ND = encoder.pool_features(data.pool, data.size).to(encoder.device)
    (learned,) = protocol.learn(pool_ND, [task])
    weight_CD, bias_C = learned.classifier
    head = nn.Linear(weight_CD.shape[1], weight_CD.shape[0], device=weight_CD.device)
    head.load_state_dict({"weight": weight_CD, "bias": bias_C - bias_C.mean()})  # for float32
    return Learned(
        encoder.module,
        head,
        protocol.held_out(pool_ND, task, learned.penalty).cpu(),
        task.pool_labels_N[task.held_out_V],
        {"penalty": learned.penalty},
        protocol.settings(),
    )


def _fine_tuned(
    protocol: FineTune, encoder: FrozenEncoder, data: EvaluationData, task: Task
) -> Learned:
    recipe, scores_VC = protocol.choose(encoder, data, task)
    chosen = {} if scores_VC is None else {"encoder_lr": recipe.encoder_lr}
    if scores_VC is None:
        scores_VC = protocol.held_out(encoder, data, task, recipe)
    network = protocol.learn(encoder, data, task, recipe).network
    labels_V = task.pool_labels_N[task.choose_V]
    settings = protocol.settings()
    return Learned(network.encoder, network.head, scores_VC, labels_V, chosen, settings)
