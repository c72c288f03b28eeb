"""The linear probe on the embedding of a run, and on its subspaces.

M test images, C classes, D dimensions of the embedding, K operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.accuracy import correct_within
from mast.evaluation.intervals import Measured
from mast.evaluation.labelled_sets import EvaluationData, tasks
from mast.evaluation.protocols.evaluator import features_of
from mast.evaluation.protocols.probe import Probe
from mast.models.selection import relative


@final
@dataclass(frozen=True, kw_only=True)
class EmbeddingProbe(Probe):
    """The linear probe on the embedding, and what each subspace alone says of the true class.

    For the test images that the probe classifies correctly, the embedding is masked to one
    operator's subspace and given to the same probe: the higher the probability that is left for the
    true class, the more of what the task needs lies in that subspace. It needs a run; a method
    without masks has the accuracy alone. The settings are those of `linear`.

    Reference:
        MAST, Figure 6 and appendix ("Class predictions").
    """

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """See `Evaluator.run`.

        Yields:
            The accuracies; `prediction_<operator>`, the mean probability of the true class, and
            `advantage_<operator>`, how far that is from the mean over operators: in percent, with
            intervals over the images that the probe classifies correctly.
        """
        embedding = encoder.representation("embedding")
        operators: tuple[str, ...] = getattr(embedding.module, "operators", ())
        pool_ND, test_MD = features_of(embedding, data)
        targets = tasks(data, self.seed)
        for task, learned in zip(targets, self.learn(pool_ND, targets), strict=True):
            scores_MC = learned.classifier.scores(test_MD)
            yield from self.report(task, learned, scores_MC)
            labels_M = task.test_labels_M.to(encoder.device)
            correct_M = correct_within(scores_MC, labels_M, k=1) == 1
            if not operators or not correct_M.any():
                continue
            files_M = task.test_files_M
            files_M = None if files_M is None else files_M[correct_M.cpu()]
            credit_KM = torch.stack(
                [
                    learned.classifier.scores(test_MD[correct_M] * mask_D)
                    .softmax(dim=1)
                    .gather(1, labels_M[correct_M, None])
                    .squeeze(1)
                    .cpu()
                    for mask_D in subspaces(embedding).unbind(dim=1)
                ]
            )
            for kind, value_KM in (
                ("prediction", credit_KM),
                ("advantage", credit_KM - credit_KM.mean(dim=0)),
            ):
                for operator, value_M in zip(operators, value_KM, strict=True):
                    # Another run is right about other images.
                    yield from self.measured(
                        task, f"{kind}_{operator}", value_M, paired=False,
                        difference=kind == "advantage", files_N=files_M,
                    )  # fmt: skip


def subspaces(embedding: FrozenEncoder) -> Tensor:
    """The masks of a run, mask_DK in [0, 1]: each over its own largest entry."""
    module: Any = embedding.module
    with torch.no_grad():
        mask_DK: Tensor = module.masks()
    return relative(mask_DK)
