"""Which dimensions each operator's subspace takes, and which operators ask for the same ones.

K operators, D dimensions of the embedding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from mast.analyze import figure
from mast.analyze.analysis import Analysis, Arrays, Subject

if TYPE_CHECKING:
    from mast.analyze.figure import Figure

ALIKE, APART = 0.9, 0.5  # cosine from which two masks are called redundant, and below it different


@final
class Masks(Analysis):
    """The mask matrix, what each mask has to itself, and how alike the masks are.

    Arrays:
        operators: (K,) names.
        masks: (K, D) as the distance uses them.
        dimensions: (D,) order of the dimensions in the figure: by the operator that holds most of
            each, then by how much it holds.
        correlation: (K, K) cosine of two masks, from 0 to 1.
        linkage: (K - 1, 4) average-linkage clustering of 1 - cosine, as SciPy has it.
        order: (K,) operators in the order of its leaves.
        own_share: (K,) the share of a mask's energy that no other mask claims: 1 for a mask that is
            disjoint from all others, 1 / K where all are the same.

    Reference:
        MAST, Figures 3a and 4a.
    """

    title: ClassVar[str] = "Which dimensions each operator takes"

    def lacking(self, subject: Subject) -> str | None:
        """See `Analysis.lacking`."""
        if subject.mask_DK is None:
            return "This run has no masks: only MAST learns them."
        if not bool(subject.mask_DK.isfinite().all()):
            return "The masks are not finite: the run diverged."
        return None

    def compute(self, subject: Subject) -> Arrays:
        """See `Analysis.compute`."""
        assert subject.mask_DK is not None
        mask_KD = subject.mask_DK.detach().cpu().double().numpy().T
        energy_KD = mask_KD**2 / np.maximum((mask_KD**2).sum(axis=1, keepdims=True), 1e-12)
        claim_KD = energy_KD / np.maximum(energy_KD.sum(axis=0), 1e-12)
        unit_KD = mask_KD / np.maximum(np.linalg.norm(mask_KD, axis=1, keepdims=True), 1e-12)
        correlation_KK = np.clip(unit_KD @ unit_KD.T, 0, 1)
        linkage, order_K = _cluster(correlation_KK)
        holder_D = claim_KD.argmax(axis=0)
        return {
            "operators": np.array(subject.operators),
            "masks": mask_KD.astype(np.float32),
            "dimensions": np.lexsort((-claim_KD.max(axis=0), holder_D)),
            "correlation": correlation_KK,
            "linkage": linkage,
            "order": order_K,
            "own_share": (energy_KD * claim_KD).sum(axis=1),
        }

    def draw(self, arrays: Arrays) -> Figure:
        """See `Analysis.draw`."""
        return figure.masks(
            list(arrays["operators"]),
            arrays["masks"][:, arrays["dimensions"]],
            arrays["correlation"],
            arrays["order"],
            arrays["linkage"],
        )

    def caption(self, arrays: Arrays) -> str:
        """See `Analysis.caption`."""
        names = [figure.words(name) for name in arrays["operators"]]
        if len(names) == 1:
            return f"There is one operator, {names[0]}; it has the whole embedding to itself."
        correlation_KK = arrays["correlation"]
        pairs = [(row, column) for row in range(len(names)) for column in range(row)]
        closest = max(pairs, key=lambda pair: correlation_KK[pair])
        alike = sum(correlation_KK[pair] > ALIKE for pair in pairs)
        others_K = (correlation_KK.sum(axis=1) - np.diag(correlation_KK)) / (len(names) - 1)
        newest = int(others_K.argmin())
        own_K = arrays["own_share"]
        text = (
            f"{names[closest[0]]} and {names[closest[1]]} take the most alike dimensions (cosine "
            f"{correlation_KK[closest]:.2f}); {names[newest]} is the least like the others (mean "
            f"{others_K[newest]:.2f}) and so adds the most that is new. Between {own_K.min():.0%} "
            f"and {own_K.max():.0%} of a mask is its own; masks that are all the same would have "
            f"{1 / len(names):.0%}."
        )
        if alike == len(pairs):
            return f"{text} All pairs are above {ALIKE}: one subspace serves every operator."
        if alike:
            return f"{text} {alike} of {len(pairs)} pairs are above {ALIKE}, and so redundant."
        if max(correlation_KK[pair] for pair in pairs) < APART:
            return f"{text} No two masks are alike: every operator has its own subspace."
        return text


def _cluster(correlation_KK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average linkage of the masks, and the order of its leaves."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    count = len(correlation_KK)
    if count < 2:
        return np.empty((0, 4)), np.arange(count)
    distance_KK = 1 - correlation_KK
    np.fill_diagonal(distance_KK, 0)
    tree = linkage(squareform(distance_KK, checks=False), "average", optimal_ordering=True)
    return tree, leaves_list(tree)
