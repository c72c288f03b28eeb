"""Which dimensions each operator's subspace takes, and which operators ask for the same ones.

K operators, D dimensions of the embedding.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from mast.analyses import figure
from mast.analyses.analysis import Analysis, Arrays, Details, Grid, Subject

ALIKE, APART = 0.9, 0.5  # cosine from which two masks are called redundant, and below it different
FEW = 0.25  # of the dimensions, that a block has at most


@final
class MasksAnalysis(Analysis):
    """The mask matrix, what each mask has to itself, and how alike the masks are.

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
            return "This run has no masks: its method learns none."
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
        """The mask matrix, below it the dendrogram beside the correlation."""
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
        figure.cells(axis, np.zeros((count, 1)), [
            [f"{name}: {own:.0%} of the mask is its own; entries from {row_D.min():.2f} to "
             f"{row_D.max():.2f}"]
            for name, own, row_D in zip(operators, arrays["own_share"], mask_KD, strict=True)
        ], width=mask_KD.shape[1])  # fmt: skip
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
        cell_texts = np.char.mod("%.2f", ordered_KK).tolist() if count <= 10 else None
        figure.cells(matrix, ordered_KK, [
            [f"{first} and {second}: {value:.2f}" for second, value in zip(names, row, strict=True)]
            for first, row in zip(names, ordered_KK, strict=True)
        ], cell_texts=cell_texts)  # fmt: skip
        below.colorbar(image, ax=matrix, label="cosine of two masks")
        return drawn

    def caption(self, arrays: Arrays) -> str:
        live_K = (arrays["masks"] != 0).any(axis=1)
        names = [figure.words(name) for name in arrays["operators"]]
        live = [name for name, is_live in zip(names, live_K, strict=True) if is_live]
        dead = [name for name in names if name not in live]
        sentences = []
        if dead:
            masks, them = ("masks", "them") if len(dead) > 1 else ("mask", "it")
            verb = "are" if len(dead) > 1 else "is"
            sentences.append(
                f"The {masks} of {_and(dead)} {verb} all zero: no dimension is invariant to {them}."
            )
        if len(live) == 1:
            alone = f"{live[0]} is the only operator and has the whole embedding to itself."
            sentences.append(figure.capital(f"only {live[0]} has a subspace." if dead else alone))
        elif live:
            correlation_KK = arrays["correlation"][np.ix_(live_K, live_K)]
            sentences.append(
                _exempt(live, arrays["masks"][live_K])
                or _alike(live, correlation_KK, arrays["own_share"][live_K])
            )
        return " ".join(sentences)

    def details(self, arrays: Arrays) -> Details:
        """A mask that is all zero uses no dimension and has no cosine."""
        energy_KD = arrays["masks"].astype(float) ** 2
        live_K = energy_KD.sum(axis=1) > 0
        squared_K = np.where(live_K, (energy_KD**2).sum(axis=1), 1)
        used_K = energy_KD.sum(axis=1) ** 2 / squared_K / energy_KD.shape[1]
        mean_K = np.full(len(live_K), np.nan)
        mean_K[live_K] = _mean_cosine_to_others(arrays["correlation"][np.ix_(live_K, live_K)])
        own_K = np.where(live_K, arrays["own_share"], np.nan)
        rows = tuple(
            (figure.words(name), 100 * own, 100 * (1 - own), 100 * used, mean)
            for name, own, used, mean in zip(
                arrays["operators"], own_K.tolist(), used_K.tolist(), mean_K.tolist(), strict=True
            )
        )
        columns = ("operator", "own (%)", "shared (%)", "dimensions used (%)", "mean cosine")
        return Details(Grid(columns, rows))


def _exempt(names: list[str], mask_KD: np.ndarray) -> str | None:
    """Which operators some dimensions are exempt from, in words; None unless masks are blocks.

    Blocks are masks that are zero in a few dimensions and the same in all others.
    """
    zero_KD = mask_KD == 0
    if (
        not 0 < zero_KD.mean(axis=1).max() <= FEW
        or not (zero_KD | (mask_KD == mask_KD.max(axis=1, keepdims=True))).all()
    ):
        return None
    sharing: dict[bytes, list[int]] = {}
    for at, zero_D in enumerate(zero_KD):
        sharing.setdefault(zero_D.tobytes(), []).append(at)
    parts = [
        f"{zero_KD[members[0]].mean():.0%} of the dimensions are exempt from "
        f"{_and([names[at] for at in members])}"
        for members in sharing.values()
        if zero_KD[members[0]].any()
    ]
    rest = [name for name, zero_D in zip(names, zero_KD, strict=True) if not zero_D.any()]
    if rest:
        parts.append(f"all are invariant to {_and(rest)}")
    return f"{figure.capital('; '.join(parts))}."


def _alike(names: list[str], correlation_KK: np.ndarray, own_K: np.ndarray) -> str:
    """How alike two or more masks are, in words."""
    pairs = [(row, column) for row in range(len(names)) for column in range(row)]
    closest = max(pairs, key=lambda pair: correlation_KK[pair])
    alike = sum(correlation_KK[pair] > ALIKE for pair in pairs)
    mean_K = _mean_cosine_to_others(correlation_KK)
    least = int(mean_K.argmin())
    if alike == len(pairs):
        finding = f"All masks are alike (cosine above {ALIKE}): one subspace serves every operator."
    elif alike:
        finding = f"{alike} of {len(pairs)} pairs of masks have a cosine above {ALIKE}."
    elif correlation_KK[closest] < APART:
        finding = "No two masks are alike: every operator has its own subspace."
    else:
        finding = f"No pair of masks has a cosine above {ALIKE}."
    text = ""
    if len(names) == 2:
        text = f"The cosine of {names[0]} and {names[1]} is {correlation_KK[0, 1]:.2f}. "
    elif alike < len(pairs):
        text = (
            f"{figure.capital(names[closest[0]])} and {names[closest[1]]} have the most similar "
            f"masks (cosine {correlation_KK[closest]:.2f}); {names[least]} differs most from the "
            f"others (mean {mean_K[least]:.2f}). "
        )
    return (
        f"{finding} {text}Of each mask {own_K.min():.0%} to {own_K.max():.0%} is its own "
        f"({1 / len(names):.0%} if all were identical)."
    )


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _mean_cosine_to_others(correlation_KK: np.ndarray) -> np.ndarray:
    """Mean of each mask's cosines with the others, (K,); 0 for a mask that is alone."""
    total_K = correlation_KK.sum(axis=1) - np.diag(correlation_KK)
    return np.asarray(total_K / max(len(correlation_KK) - 1, 1))


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
