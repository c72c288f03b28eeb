"""What the nearest images share, in spaces that are chosen by operator.

M test images, D dimensions of the embedding, T targets, K operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.augment import PROPERTIES
from mast.core.errors import UserError
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.agreement import chance, precision, retrieve
from mast.evaluation.intervals import Measured
from mast.evaluation.labelled_sets import EvaluationData, tasks
from mast.evaluation.protocols.evaluator import Evaluator
from mast.models.selection import exempt_blocks
from paper.outputs import head_weights

PRECISION = "precision_"  # of the nearest images; what follows names a space
TOLD = "told_"  # of a space that heads read; what follows names the operators that they predict


class SearchSpace(NamedTuple):
    """What images are compared in.

    Attributes:
        of: "representation" or "embedding".
        seen: Maps the features_BD of either to those that are compared.
    """

    of: str
    seen: Callable[[Tensor], Tensor] = Tensor.float


def space_of_heads(weights: Mapping[str, Tensor], operators: Sequence[str]) -> SearchSpace:
    """The hidden units of the heads that predict some operators, side by side.

    `weights` are, by operator, weight_HC of the first layer of its head over the representation.
    """
    weight_HC = torch.cat([weights[name] for name in operators])
    return SearchSpace("representation", partial(F.linear, weight=weight_HC))


@final
@dataclass(frozen=True, kw_only=True)
class Retrieval(Evaluator[EvaluationData]):
    """Every test image queries all others by cosine; nothing is learned or tuned.

    The spaces are `representation`, the encoder's; `embedding`, where it is that of a run; and for
    each distinct mask of the run, named by its operators, `match_<operators>`, the dimensions that
    are exempt from them, and `ignore_<operators>`, those that are invariant to them; and where
    heads tell operators from the representation, `told_<operators>`, what the first layer of each
    reads, and of those that change the same property together.
    Queries to which no other image has the same label are left out.

    Args:
        k: Nearest images that count for the precision, clipped to the others that there are.
    """

    limits: ClassVar = {"k": "(0, inf)"}

    k: int = 10

    def run(self, encoder: FrozenEncoder, data: EvaluationData) -> Iterator[Measured]:
        """See `Evaluator.run`.

        Yields:
            For each space `precision_<space>`, the share of the k nearest that have the query's
            label, and `mAP_<space>`, the mean average precision of the whole ranking, both with
            intervals over queries; `chance`, the precision of a random order.
        """
        answers = tasks(data, self.seed, tuned=False)
        files_M = answers[0].test_files_M
        chance_TM = [chance(task.test_labels_M, files_M) for task in answers]
        for task, chance_M in zip(answers, chance_TM, strict=True):
            if not (chance_M > 0).any():
                two = "two test images" if files_M is None else "test images of two files"
                raise UserError(f"no {two} have the same {task.target}, so none can find another")
        modules = _modules(encoder)
        features = {
            name: module.features(data.test, data.size).to(module.device)
            for name, module in modules.items()
        }
        labels_TM = torch.stack([task.test_labels_M for task in answers])
        for space, (module, seen) in _spaces(modules).items():
            x_MD = seen(features[module])
            retrieved = {
                name: retrieve(x_MD, x_MD, labels_TM.to(x_MD.device), self.k, files_M, measure)
                for name, measure in MEASURES.items()
            }
            for at, (task, chance_M) in enumerate(zip(answers, chance_TM, strict=True)):
                asks_M = chance_M > 0
                asking_M = None if files_M is None else files_M[asks_M]
                for measure, value_TM in retrieved.items():
                    value_M = value_TM[at].cpu()[asks_M]
                    yield from self.measured(task, f"{measure}{space}", value_M, files_N=asking_M)
                by_chance = 100 * float(chance_M[asks_M].mean())
                yield f"{task.target}/by_chance/{PRECISION}{space}", by_chance
        for task, chance_M in zip(answers, chance_TM, strict=True):
            yield f"{task.target}/chance", 100 * float(chance_M[chance_M > 0].mean())


def average_precision(same_RM: Tensor, end_RM: Tensor, _k_R: Tensor) -> Tensor:
    """Average precision, NaN without another image of the label; a tie counts with the precision
    at its end.
    """
    found_RM = same_RM.cumsum(dim=1, dtype=torch.float32)
    rank_M = torch.arange(1, found_RM.shape[1] + 1, device=found_RM.device)
    precision_RM = (found_RM / rank_M).gather(1, end_RM)
    return (precision_RM * same_RM).sum(dim=1, dtype=torch.float64) / found_RM[:, -1]


MEASURES = {PRECISION: precision, "mAP_": average_precision}


def _modules(encoder: FrozenEncoder) -> dict[str, FrozenEncoder]:
    """The encoder, and the embedding where it is that of a run."""
    modules = {"representation": encoder}
    if encoder.representations:
        modules["embedding"] = encoder.representation("embedding")
    return modules


def _spaces(modules: Mapping[str, FrozenEncoder]) -> dict[str, SearchSpace]:
    """The spaces that a run has, by name."""
    spaces = {name: SearchSpace(name) for name in modules}
    if "embedding" not in modules:
        return spaces
    embedding: Any = modules["embedding"].module
    with torch.no_grad():
        mask_DK = embedding.masks()
    blocks = {} if mask_DK is None else exempt_blocks(mask_DK, embedding.operators)
    for name, exempt_D in blocks.items():
        spaces[f"match_{name}"] = SearchSpace("embedding", exempt_D.mul)
        spaces[f"ignore_{name}"] = SearchSpace("embedding", (1 - exempt_D).mul)
    weights = head_weights(embedding)
    groups = [[name] for name in weights]
    groups += [[name for name in weights if name in of] for of in PROPERTIES.values()]
    for names in filter(None, groups):
        spaces[TOLD + "+".join(names)] = space_of_heads(weights, names)
    return spaces
