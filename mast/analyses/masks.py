"""Which dimensions each operator's subspace takes, and which operators ask for the same ones.

K operators, D dimensions of the embedding.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, final

import numpy as np
import torch

from mast.analyses import figure
from mast.analyses.analysis import NO_MASKS, Analysis, Arrays, Subject
from mast.models.selection import exempt_blocks

ALIKE = 0.9  # cosine above which two masks are called redundant
FEW = 0.25  # of the dimensions, that a block has at most


@final
class MasksAnalysis(Analysis):
    """The mask matrix, the share of each mask that is its own, and the masks' cosines.

    Arrays:
        operators: (K,) names.
        masks: (K, D) as the distance uses them.
        dimensions: (D,) order of the dimensions in the figure: by the operator that holds most of
            each, then by how much it holds.
        correlation: (K, K) cosine of two masks, from 0 to 1; 0 where one is all zero.
        order: (K,) operators in the order of an average-linkage clustering of 1 - cosine.
        own_share: (K,) the share of a mask's energy that no other mask claims: 1 for a mask that is
            disjoint from all others, 1 / K where all are the same.

    Reference:
        MAST, Figures 3a and 4a.
    """

    def lacking(self, subject: Subject) -> str | None:
        if subject.mask_DK is None:
            return NO_MASKS
        if not bool(subject.mask_DK.isfinite().all()):
            return "The masks are not finite: the run diverged."
        return None

    def compute(self, subject: Subject) -> Arrays:
        from sklearn.metrics.pairwise import cosine_similarity

        assert subject.mask_DK is not None
        mask_KD = subject.mask_DK.detach().cpu().double().numpy().T
        energy_KD = mask_KD**2 / np.maximum((mask_KD**2).sum(axis=1, keepdims=True), 1e-12)
        claim_KD = energy_KD / np.maximum(energy_KD.sum(axis=0), 1e-12)
        correlation_KK = cosine_similarity(mask_KD).clip(0, 1)
        holder_D = claim_KD.argmax(axis=0)
        return {
            "operators": np.array(subject.operators),
            "masks": mask_KD.astype(np.float32),
            "dimensions": np.lexsort((-claim_KD.max(axis=0), holder_D)),
            "correlation": correlation_KK,
            "order": _clustered(correlation_KK),
            "own_share": (energy_KD * claim_KD).sum(axis=1),
        }

    @figure.styled
    def draw(self, arrays: Arrays) -> figure.Figure:
        """The mask matrix, below it the correlation, in the order of the clusters."""
        operators = [figure.words(name) for name in arrays["operators"]]
        count = len(operators)
        heights = (1.2 + 0.2 * count, 2.2 + 0.2 * count)
        drawn = figure.empty(sum(heights) + 1.4)
        parts: Any = drawn.subfigures(2, 1, height_ratios=heights)
        above, below = parts
        axis = above.subplots()
        mask_KD = arrays["masks"][:, arrays["dimensions"]]
        image = axis.imshow(mask_KD, aspect="auto", cmap="cividis", interpolation="nearest")
        axis.set_yticks(range(count), operators)
        axis.set_xlabel("dimension of the embedding, ordered by the operator that holds most of it")
        axis.grid(visible=False)
        above.colorbar(image, ax=axis, label="mask")
        matrix = below.subplots()
        order_K = arrays["order"]
        ordered_KK = arrays["correlation"][np.ix_(order_K, order_K)]
        image = matrix.imshow(ordered_KK, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        names = [operators[at] for at in order_K]
        matrix.set_yticks(range(count), names)
        matrix.set_xticks(range(count), names, rotation=45, ha="right", rotation_mode="anchor")
        matrix.yaxis.tick_right()
        matrix.spines.left.set_visible(False)
        matrix.grid(visible=False)
        if count <= 10:
            figure.write_cells(matrix, ordered_KK, np.char.mod("%.2f", ordered_KK).tolist())
        below.colorbar(image, ax=matrix, label="cosine of two masks")
        return drawn

    def caption(self, arrays: Arrays) -> str:
        mask_KD, cosine_KK, own_K = (arrays[key] for key in ("masks", "correlation", "own_share"))
        names = [figure.words(name) for name in arrays["operators"]]
        live = np.flatnonzero(mask_KD.any(axis=1)).tolist()
        sentences = []
        if dead := [name for at, name in enumerate(names) if at not in live]:
            sentences.append(f"No dimension is invariant to {', '.join(dead)}: all zero.")
        if blocks := _blocks([names[at] for at in live], mask_KD[live]):
            listed = [f"{share:.0%} from {name}" for name, share in blocks.items()]
            sentences.append(f"Exempt dimensions: {'; '.join(listed)}.")
        elif len(live) == 1:
            sentences.append(f"Only {names[live[0]]} has a subspace.")
        elif live:
            pairs = [*combinations(live, 2)]
            first, second = max(pairs, key=lambda pair: cosine_KK[pair])
            close = sum(cosine_KK[pair] > ALIKE for pair in pairs)
            sentences.append(
                f"{close} of {len(pairs)} pairs of masks have a cosine above {ALIKE}; the most "
                f"similar are {names[first]} and {names[second]} ({cosine_KK[first, second]:.2f})."
            )
            sentences.append(
                f"{own_K[live].min():.0%} to {own_K[live].max():.0%} of a mask is its own "
                f"({1 / len(live):.0%} if all were identical)."
            )
        return " ".join(sentences)


def _blocks(names: list[str], mask_KD: np.ndarray) -> dict[str, float]:
    """The share of the dimensions that are exempt from operators; none unless masks are blocks.

    Blocks are masks that are zero in a few dimensions and the same in all others.
    """
    if not np.isin(mask_KD / mask_KD.max(axis=1, keepdims=True), (0, 1)).all():
        return {}
    exempt = exempt_blocks(torch.from_numpy(mask_KD.T), names)
    shares = {name.replace("+", ", "): float(of_D.mean()) for name, of_D in exempt.items()}
    return shares if max(shares.values(), default=1.0) <= FEW else {}


def _clustered(correlation_KK: np.ndarray) -> np.ndarray:
    """The order of the leaves of an average linkage of the masks."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    if len(correlation_KK) < 2:
        return np.arange(len(correlation_KK))
    distance_KK = 1 - correlation_KK
    np.fill_diagonal(distance_KK, 0)
    tree = linkage(squareform(distance_KK, checks=False), "average", optimal_ordering=True)
    return np.asarray(leaves_list(tree))
