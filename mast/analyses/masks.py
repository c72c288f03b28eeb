"""Which dimensions each operator's subspace takes, and which operators ask for the same ones.

K operators, D dimensions of the embedding.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, final

import numpy as np
import torch

from mast.analyses import figure
from mast.analyses.analysis import NO_MASKS, Analysis, Arrays, Details, Grid, Subject
from mast.models import exempt_blocks

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
        linkage: (K - 1, 4) average-linkage clustering of 1 - cosine, as SciPy has it.
        order: (K,) operators in the order of its leaves.
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

    @figure.styled
    def draw(self, arrays: Arrays) -> figure.Figure:
        """The mask matrix, below it the dendrogram and the correlation."""
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
        tree, matrix = below.subplots(1, 2, width_ratios=(1, 3))
        if count > 1:
            from scipy.cluster.hierarchy import dendrogram

            dendrogram(
                arrays["linkage"], ax=tree, orientation="left", no_labels=True,
                link_color_func=lambda _: figure.GRAY,
            )  # fmt: skip
            tree.invert_yaxis()
        tree.set_axis_off()
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

    def details(self, arrays: Arrays) -> Details:
        """A mask that is all zero uses no dimension and has no cosine."""
        energy_KD = arrays["masks"].astype(float) ** 2
        live_K = energy_KD.any(axis=1)
        squared_K = np.where(live_K, (energy_KD**2).sum(axis=1), 1)
        used_K = energy_KD.sum(axis=1) ** 2 / squared_K / energy_KD.shape[1]
        others_K = np.maximum(live_K.sum() - 1, 1)
        mean_K = np.where(live_K, (arrays["correlation"].sum(axis=1) - 1) / others_K, np.nan)
        own_K = np.where(live_K, arrays["own_share"], np.nan)
        rows = tuple(
            (figure.words(name), *numbers)
            for name, *numbers in zip(
                arrays["operators"], 100 * own_K, 100 * (1 - own_K), 100 * used_K, mean_K,
                strict=True,
            )
        )  # fmt: skip
        columns = ("operator", "own (%)", "shared (%)", "dimensions used (%)", "mean cosine")
        return Details(Grid(columns, rows))


def _blocks(names: list[str], mask_KD: np.ndarray) -> dict[str, float]:
    """The share of the dimensions that are exempt from operators; none unless masks are blocks.

    Blocks are masks that are zero in a few dimensions and the same in all others.
    """
    if not np.isin(mask_KD / mask_KD.max(axis=1, keepdims=True), (0, 1)).all():
        return {}
    exempt = exempt_blocks(torch.from_numpy(mask_KD.T), names)
    shares = {name.replace("+", ", "): float(of_D.mean()) for name, of_D in exempt.items()}
    return shares if max(shares.values(), default=1.0) <= FEW else {}


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
