"""How much of an operator each subspace forgets: what it says of an image before and after.

N images, D dimensions, K operators with a mask, O operators that are tried, S magnitudes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.analyze import figure
from mast.analyze.analysis import Analysis, Arrays, Subject
from mast.augment import OPERATORS

if TYPE_CHECKING:
    from mast.analyze.figure import Figure

MAGNITUDES = (0.2, 0.4, 0.6, 0.8, 1.0)
LEVEL = 1.96  # standard errors on either side: a 95 % interval of the mean over images


@final
class Invariance(Analysis):
    """Cosine similarity of masked embeddings of images and of their changed copies.

    Every operator that the run was trained with and that has a magnitude, against every subspace,
    and against the whole embedding; beside it the embedding of other runs. 1 is full invariance.

    Arrays:
        operators: (O,) names of what was done to the images.
        subspaces: (K + 1,) names of the masks, the last "whole embedding".
        magnitudes: (S,) from 0 to 1, 1 the strongest that pretraining draws.
        similarity: (O, K + 1, S) mean cosine over the images.
        margin: (O, K + 1, S) half of its 95 % interval.
        beside: (R,) names of the other runs.
        similarity_beside: (R, O, S) of their embeddings.
        margin_beside: (R, O, S) half of the interval.

    Reference:
        MAST, Figure 7.
    """

    title: ClassVar[str] = "What each subspace forgets"

    def lacking(self, subject: Subject) -> str | None:
        """See `Analysis.lacking`."""
        if subject.embed is None:
            return "There are no images to look at: name some with --data."
        if subject.mask_DK is None:
            return "This run has no masks: only MAST learns them."
        if not _graded(subject):
            return "None of its operators has a magnitude that could be turned up."
        return None

    def compute(self, subject: Subject) -> Arrays:
        """See `Analysis.compute`."""
        assert subject.mask_DK is not None
        names = _graded(subject)
        whole_D1 = torch.ones(len(subject.mask_DK), 1)
        mask_DS = torch.cat([subject.mask_DK.detach().cpu(), whole_D1], dim=1)
        own = [_curve(subject, name, mask_DS) for name in names]
        beside = [
            [_curve(other, name, None) for name in names]
            for other in subject.beside
            if other.embed is not None
        ]
        shape = (len(beside), len(names), len(MAGNITUDES))
        return {
            "operators": np.array(names),
            "subspaces": np.array([*subject.operators, "whole embedding"]),
            "magnitudes": np.array(MAGNITUDES),
            "similarity": np.stack([mean for mean, _ in own]),
            "margin": np.stack([margin for _, margin in own]),
            "beside": np.array([other.name for other in subject.beside if other.embed], str),
            "similarity_beside": np.array([[m[0] for m, _ in r] for r in beside]).reshape(shape),
            "margin_beside": np.array([[m[0] for _, m in r] for r in beside]).reshape(shape),
        }

    def draw(self, arrays: Arrays) -> Figure:
        """See `Analysis.draw`."""
        return figure.invariance(arrays)

    def caption(self, arrays: Arrays) -> str:
        """See `Analysis.caption`."""
        names, subspaces = list(arrays["operators"]), list(arrays["subspaces"])
        strongest_OS = arrays["similarity"][:, :, -1]
        lines = []
        won = 0
        for row, name in enumerate(names):
            own = strongest_OS[row, subspaces.index(name)]
            others = np.delete(strongest_OS[row, :-1], subspaces.index(name))
            won += bool(len(others) == 0 or own >= others.max())
            lines.append(f"{figure.words(name)} {own:.2f} (whole {strongest_OS[row, -1]:.2f})")
        return (
            f"Cosine at the strongest magnitude in the operator's own subspace: "
            f"{', '.join(lines)}. For {won} of {len(names)} operators their own subspace is the "
            "most invariant of all."
        )


def _graded(subject: Subject) -> list[str]:
    return [name for name in subject.operators if name in OPERATORS and OPERATORS[name].graded]


def _curve(subject: Subject, name: str, mask_DS: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean cosine and half of its interval, each (subspaces, magnitudes)."""
    assert subject.embed is not None
    before_ND = subject.embed(None)
    if mask_DS is None:
        mask_DS = torch.ones(before_ND.shape[1], 1)
    means, margins = [], []
    for magnitude in MAGNITUDES:
        after_ND = subject.embed((name, magnitude))
        cosine_NS = torch.stack(
            [
                F.cosine_similarity(before_ND * mask_D, after_ND * mask_D, dim=1)
                for mask_D in mask_DS.unbind(dim=1)
            ],
            dim=1,
        ).double()
        means.append(cosine_NS.mean(dim=0).numpy())
        spread = cosine_NS.std(dim=0, correction=0).numpy()
        margins.append(LEVEL * spread / max(len(cosine_NS), 1) ** 0.5)
    return np.stack(means, axis=1), np.stack(margins, axis=1)
