"""How much of an operator each subspace forgets: embeddings of images before and after it acts.

N images, D dimensions, K operators with a mask, O operators that are tried, S magnitudes, X
subspaces and the whole embedding, R other runs.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.analyses import figure
from mast.analyses.analysis import (
    NO_IMAGES,
    Arrays,
    Details,
    Grid,
    Subject,
    mean_and_margin,
)
from mast.augment import OPERATORS
from paper.analyses.base import PaperAnalysis, curve, legend

MAGNITUDES = (0.2, 0.4, 0.6, 0.8, 1.0)
UNSEEN = 0.999  # cosine above which the embedding does not see what was done


@final
class Invariance(PaperAnalysis):
    """Cosine similarity of masked embeddings of images and of their changed copies.

    Every operator that the run was trained with and that has a magnitude, against every subspace,
    against the whole embedding, and against embeddings of other runs. 1 is full invariance.

    Arrays:
        operators: (O,) names of what was done to the images.
        subspaces: (K + 1,) names of the masks, the last "whole embedding".
        magnitudes: (S,) from 0 to 1, 1 the strongest of the operator's default range.
        similarity: (O, K + 1, S) mean cosine over the images.
        margin: (O, K + 1, S) half of its 95 % interval; NaN of a single image.
        lead: (O,) cosine in the operator's own subspace less that in the most invariant one of
            another mask, at the strongest magnitude, mean over the images; NaN if there is none.
        lead_margin: (O,) half of its paired 95 % interval.
        beside: (R,) names of the other runs.
        similarity_beside: (R, O, S) of their embeddings.
        margin_beside: (R, O, S) half of the interval.

    Reference:
        MAST, Figure 7.
    """

    def lacking(self, subject: Subject) -> str | None:
        if subject.embed is None:
            return NO_IMAGES
        if subject.mask_DK is None:
            return "This run has no masks: its method learns none."
        if not _graded(subject):
            return "None of its operators has a magnitude that could be turned up."
        return None

    def compute(self, subject: Subject) -> Arrays:
        assert subject.mask_DK is not None
        names = _graded(subject)
        whole_D1 = torch.ones(len(subject.mask_DK), 1)
        mask_DX = torch.cat([subject.mask_DK.detach().cpu(), whole_D1], dim=1)
        cosine_NOXS = np.stack([_cosines(subject, name, mask_DX) for name in names], axis=1)
        similarity_OXS, margin_OXS = mean_and_margin(cosine_NOXS)
        beside = [other for other in subject.beside if other.embed is not None]
        beside_RO2S = np.array(
            [[mean_and_margin(_cosines(other, name, torch.ones(1, 1))[:, 0]) for name in names]
             for other in beside]
        ).reshape(len(beside), len(names), 2, len(MAGNITUDES))  # fmt: skip
        own_O = [subject.operators.index(name) for name in names]
        lead_O2 = np.array(
            [_lead(cosine_NOXS[:, row, :, -1], own, mask_DX) for row, own in enumerate(own_O)]
        )
        return {
            "operators": np.array(names),
            "subspaces": np.array([*subject.operators, "whole embedding"]),
            "magnitudes": np.array(MAGNITUDES),
            "similarity": similarity_OXS,
            "margin": margin_OXS,
            "lead": lead_O2[:, 0],
            "lead_margin": lead_O2[:, 1],
            "beside": np.array([other.name for other in beside], str),
            "similarity_beside": beside_RO2S[:, :, 0],
            "margin_beside": beside_RO2S[:, :, 1],
        }

    @figure.styled
    def draw(self, arrays: Arrays) -> figure.Figure:
        """Above each operator's own subspace, below it all subspaces."""
        operators, subspaces = list(arrays["operators"]), list(arrays["subspaces"])
        columns = min(3, len(operators))
        blocks = -(-len(operators) // columns)
        drawn = figure.empty(4.6 * blocks + 0.5)
        axes: Any = drawn.subplots(2 * blocks, columns, squeeze=False, sharex=True)
        lowest = float(np.nanmin(arrays["similarity"]))
        for at in range(blocks * columns):
            above, below = axes[2 * (at // columns) : 2 * (at // columns) + 2, at % columns]
            if at >= len(operators):
                above.set_axis_off()
                below.set_axis_off()
                continue
            self._compare(above, arrays, at)
            for column, subspace in enumerate(subspaces[:-1]):  # the operator's own one is thick
                width, label = 2.5 if subspace == operators[at] else 1.0, figure.words(subspace)
                curve(
                    below, arrays["magnitudes"], arrays["similarity"][at, column],
                    figure.color(column), figure.line_style(column), width, label,
                )  # fmt: skip
            for axis in (above, below):
                axis.set_ylim(bottom=min(lowest - 0.02, 0.9), top=1.005)  # no drama over 1e-5
            below.set_xlabel("magnitude")
        for row, axis in enumerate(axes[:, 0]):
            axis.set_ylabel(
                "cosine similarity\n" + ("all subspaces" if row % 2 else "own subspace")
            )
        legend(drawn, [axis for axis in axes.flat if axis.lines], ncols=min(4, len(subspaces)))
        return drawn

    def _compare(self, axis: Any, arrays: Arrays, row: int) -> None:
        """The operator's own subspace, the whole embedding and other runs."""
        own = list(arrays["subspaces"]).index(arrays["operators"][row])
        curves = [
            ("its own subspace", figure.color(own), "-", arrays["similarity"][row, own],
             arrays["margin"][row, own]),
            ("whole embedding", "black", "--", arrays["similarity"][row, -1],
             arrays["margin"][row, -1]),
            *(
                (str(other), figure.GRAY, figure.STYLES[(2 + at) % 4],
                 arrays["similarity_beside"][at, row], arrays["margin_beside"][at, row])
                for at, other in enumerate(arrays["beside"])
            ),
        ]  # fmt: skip
        for label, ink, style, mean_S, margin_S in curves:
            # In the legend each operator's own subspace has the name and color that it has below.
            in_legend = None if label == "its own subspace" else label
            curve(axis, arrays["magnitudes"], mean_S, ink, style, 2.0, in_legend, margin_S)
        axis.set_title(figure.words(arrays["operators"][row]))

    def caption(self, arrays: Arrays) -> str:
        subspaces = list(arrays["subspaces"])
        strongest_OX = arrays["similarity"][:, :, -1]
        changed_O = strongest_OX.min(axis=1) <= UNSEEN
        names = [figure.words(name) for name in arrays["operators"]]
        lines = [
            f"{title} {strongest_OX[row, subspaces.index(name)]:.2f} "
            f"(whole {strongest_OX[row, -1]:.2f})"
            for row, (name, title) in enumerate(zip(arrays["operators"], names, strict=True))
        ]
        text = ""
        compared_O = changed_O & np.isfinite(arrays["lead"])
        if compared_O.any():
            won_O = compared_O & (arrays["lead"] - arrays["lead_margin"] > 0)
            text = (
                f"The own subspace is the most invariant for {won_O.sum()} of the "
                f"{compared_O.sum()} operators that change the embedding (beyond the 95 % interval "
                "over images). "
            )
        text += f"Cosine in the own subspace at the strongest magnitude: {', '.join(lines)}."
        if not changed_O.all():
            unseen = [name for name, changed in zip(names, changed_O, strict=True) if not changed]
            text += f" Without effect on the encoder at this size: {', '.join(unseen)}."
        return text

    def details(self, arrays: Arrays) -> Details:
        """The cosines at the strongest magnitude."""
        names = [*arrays["subspaces"], *arrays["beside"]]
        cosine_OX = np.concatenate(
            [arrays["similarity"][:, :, -1], arrays["similarity_beside"][:, :, -1].T], axis=1
        )
        rows = tuple(
            (figure.words(name), *cosine_X)
            for name, cosine_X in zip(arrays["operators"], cosine_OX.tolist(), strict=True)
        )
        return Details(Grid(("changed by", *map(figure.words, names)), rows))


def _graded(subject: Subject) -> list[str]:
    return [name for name in subject.operators if name in OPERATORS and OPERATORS[name].graded]


def _cosines(subject: Subject, name: str, mask_DX: Tensor) -> np.ndarray:
    """Of each image before and after, in each masked embedding, at each magnitude: (N, X, S).

    A mask of one entry is as wide as the embedding.
    """
    assert subject.embed is not None
    before_ND = subject.embed(None)
    cosines = []
    for magnitude in MAGNITUDES:
        after_ND = subject.embed((name, magnitude))
        cosine_NX = torch.stack(
            [
                F.cosine_similarity(before_ND * mask_D, after_ND * mask_D, dim=1)
                for mask_D in mask_DX.unbind(dim=1)
            ],
            dim=1,
        )
        cosines.append(cosine_NX.double().numpy())
    return np.stack(cosines, axis=2)


def _lead(cosine_NX: np.ndarray, own: int, mask_DX: Tensor) -> tuple[float, float]:
    """By how much the own subspace is more invariant than the best other one, and its margin."""
    other_K = (mask_DX[:, :-1] != mask_DX[:, own, None]).any(dim=0).numpy()
    rest_NK = cosine_NX[:, :-1][:, other_K]
    if rest_NK.shape[1] == 0:
        return float("nan"), float("nan")
    best = int(rest_NK.mean(axis=0).argmax())
    lead, margin = mean_and_margin(cosine_NX[:, own] - rest_NK[:, best])
    return float(lead), float(margin)
