"""How well each space of a run predicts what an operator did to two views.

P pairs of views, N images, D dimensions of a space, F features, T numbers of an operator, O
operators, S spaces, M thirds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

import numpy as np
from torch import Tensor

from mast.analyses import figure
from mast.analyses.analysis import (
    Arrays,
    Details,
    Grid,
    Subject,
    files_of,
    lacking_images,
    mean_and_margin,
)
from mast.analyses.neighbours import spaces_of
from mast.core.compute import one_thread
from mast.core.errors import UserError
from paper.analyses.base import PaperAnalysis, legend, with_margin

THIRDS = ("small", "middle", "large")
GRADES = 5  # distinct values that a number needs, to be small, middle or large
PENALTIES = (0.03, 0.3, 3.0, 30.0)  # times the pairs fitted, for features of variance 1
AXES, PRODUCTS = 64, 12  # principal axes to read, and axes whose products are added
FEWEST = 24  # images, so that a regression has something to learn from
STILL = 1e-6  # variance below which a number does not vary
OF_SPACE = 0.5  # weight above which a dimension belongs to a space


class Pairs(NamedTuple):
    """Views of the images as pretraining draws them, P pairs.

    Args:
        image_P: Position of the image that both views of a pair are of.
        representation: Of the first and of the second views, (P, C) each.
        embedding: Likewise, (P, D) each.
        differences: By operator what was drawn for a pair, (P, T), NaN where the two views do not
            show it; see `mast.augment.difference`.
    """

    image_P: np.ndarray
    representation: tuple[Tensor, Tensor]
    embedding: tuple[Tensor, Tensor]
    differences: Mapping[str, np.ndarray]


@final
class PredictedOperators(PaperAnalysis):
    """What the views of a pair reveal of how they were made, by a ridge regression.

    Every image is drawn several times as two views, as pretraining draws them. A regression is
    fitted on half of the images to predict the recorded differences, standardised, and tested on
    the other half; then the halves change places. It sees, along at most 64 principal axes of a
    space, how the views differ, with and without the sign, and along the first 12 also the products
    of both views, by which a turn of hue can be read. What two views do not show, such as the hue
    of a gray one, is left out. What can be predicted has not been forgotten; what cannot may be
    there all the same, the more so in wide spaces. The scale of a space does not matter, so that
    something may be predicted that distances hardly show.

    Arrays:
        operators: (O,) names.
        spaces: (S,) names: the representation, the whole embedding, and for each distinct mask
            what is invariant to its operators ("ignoring …") and what is exempt ("matching …").
        widths: (S,) their dimensions.
        block: (O,) position in `spaces` of what is exempt from the operator; -1 where nothing is.
        explained: (O, S) percent of the variance that is explained (R^2), on images that were not
            fitted; NaN where nothing varies or shows.
        margin: (O, S) half of its 95 % interval over files, the regressions held fixed.
        direction: (O, S, M) percent of the recorded differences whose prediction is on the right
            side of the mean, in thirds of the pairs by how large the difference is; 50 by chance;
            NaN for an operator that is done or not.

    Reference:
        Ours; the question that the exempt blocks of `mast_c` are trained to answer.
    """

    def lacking(self, subject: Subject) -> str | None:
        if subject.images is not None and subject.extras.get("pairs") is None:
            return "It compares two views of an image: this run has another number of views."
        return lacking_images(subject, FEWEST)

    def compute(self, subject: Subject) -> Arrays:
        assert subject.images is not None
        pairs: Pairs = subject.extras["pairs"]()
        files_N = files_of(subject.images)
        image_P = pairs.image_P if files_N is None else files_N.numpy()[pairs.image_P]
        if not all(view.isfinite().all() for view in (*pairs.representation, *pairs.embedding)):
            raise UserError("the views' embeddings are not finite: the run diverged")
        first_PD, second_PD = pairs.embedding
        names, views = ["representation"], [pairs.representation]
        block_of: dict[str, int] = {}
        for space in spaces_of(subject, first_PD.shape[1]):
            chosen_D = space.weight_D > OF_SPACE
            if not chosen_D.any():
                continue  # of wide masks nothing is exempt
            block_of |= dict.fromkeys(space.exempt_from, len(names))
            names.append(space.name)
            views.append((first_PD[:, chosen_D], second_PD[:, chosen_D]))
        # Space by space: there are twice as many as distinct masks.
        found_SOX = []
        with one_thread():
            for view, other in views:
                features = [_features(view, other, image_P % 2 == half) for half in (0, 1)]
                found_SOX.append(
                    [
                        _explained(features, target_PT, image_P)
                        for target_PT in pairs.differences.values()
                    ]
                )
        found_OSX = np.array(found_SOX).swapaxes(0, 1)
        return {
            "operators": np.array(list(pairs.differences)),
            "spaces": np.array(names),
            "widths": np.array([view_PD.shape[1] for view_PD, _ in views]),
            "block": np.array([block_of.get(name, -1) for name in pairs.differences]),
            "explained": found_OSX[:, :, 0],
            "margin": found_OSX[:, :, 1],
            "direction": found_OSX[:, :, 2:],
        }

    @figure.styled
    def draw(self, arrays: Arrays) -> figure.Figure:
        """What is explained; below, by the size of the change."""
        operators = [figure.words(str(name)) for name in arrays["operators"]]
        graded = [
            row for row in range(len(operators)) if np.isfinite(arrays["direction"][row]).any()
        ]
        height, rows = 0.9 + 0.32 * len(operators), -(-len(graded) // 3)
        drawn = figure.empty(height + 2.2 * rows + 0.6)
        # One grid: above a row of the whole width, below three panels per row.
        grid = drawn.add_gridspec(1 + rows, 3, height_ratios=[height] + [2.2] * rows)
        above = drawn.add_subplot(grid[0, :])
        at_O = np.arange(len(operators))
        shift_S = np.linspace(-0.25, 0.25, len(arrays["spaces"]))
        for column, (space, shift) in enumerate(zip(arrays["spaces"], shift_S, strict=True)):
            value_O, margin_O = arrays["explained"][:, column], arrays["margin"][:, column]
            above.errorbar(
                value_O, at_O + shift, xerr=margin_O, fmt="o", markersize=4, elinewidth=1,
                color=figure.color(column), label=str(space),
            )  # fmt: skip
        above.set_yticks(at_O, operators)
        above.invert_yaxis()
        above.set_xlim(-5, 103)
        above.set_xlabel("explained variance (%)")
        panels = [drawn.add_subplot(grid[1 + at // 3, at % 3]) for at in range(len(graded))]
        for at, (operator, axis) in enumerate(zip(graded, panels, strict=True)):
            for column, percent_M in enumerate(arrays["direction"][operator]):
                width = 2.5 if column == arrays["block"][operator] else 1.2
                axis.plot(THIRDS, percent_M, "o-", color=figure.color(column), linewidth=width,
                          markersize=3)  # fmt: skip
            axis.axhline(50, color=figure.GRAY, linewidth=0.8, linestyle=":")
            axis.set_ylim(40, 102)
            axis.set_title(operators[operator])
            axis.set_xlabel("change")
            if at % 3 == 0:
                axis.set_ylabel("right direction (%)")
        legend(drawn, [above], ncols=2)
        return drawn

    def caption(self, arrays: Arrays) -> str:
        """First the operators with a block, then the others."""
        names = [figure.words(str(name)) for name in arrays["operators"]]
        varied_O = np.isfinite(arrays["explained"][:, 0])
        of_blocks, others = [], []
        for row in np.flatnonzero(varied_O).tolist():
            block, width = int(arrays["block"][row]), arrays["widths"]
            if block < 0:
                others.append(f"{names[row]} {_percent(arrays, row, 0)} and "
                              f"{_percent(arrays, row, 1)}")  # fmt: skip
                continue
            of_blocks.append(
                f"{_percent(arrays, row, block)} of {names[row]} ({width[block]} of {width[1]} "
                f"dimensions; the others {_percent(arrays, row, block - 1)}, the representation "
                f"{_percent(arrays, row, 0)})"
            )
        sentences = []
        if of_blocks:
            sentences.append(f"Exempt dimensions explain {'; '.join(of_blocks)}.")
        if others:
            sentences.append(
                "Variance explained by the representation and by the whole embedding: "
                f"{'; '.join(others)}."
            )
        if of_blocks or others:
            sentences.append("Margins: 95 % over images.")
        if still := [name for name, varied in zip(names, varied_O, strict=True) if not varied]:
            sentences.append(f"Nothing to predict: {', '.join(still)}.")
        return " ".join(sentences)

    def details(self, arrays: Arrays) -> Details:
        """What each space explains of each operator."""
        titles = [
            f"{space} ({width})"
            for space, width in zip(arrays["spaces"], arrays["widths"], strict=True)
        ]
        rows = tuple(
            (figure.words(str(name)), *value_S)
            for name, value_S in zip(arrays["operators"], arrays["explained"].tolist(), strict=True)
        )
        return Details(Grid(("explained variance (%)", *titles), rows))


def _percent(arrays: Arrays, row: int, column: int) -> str:
    """Explained share with its interval; negative shares become zero."""
    value, margin = arrays["explained"][row, column], arrays["margin"][row, column]
    return f"{with_margin(max(value, 0), margin, places=0)} %"


def _features(first_PD: Tensor, second_PD: Tensor, fitted_P: np.ndarray) -> np.ndarray:
    """What a regression sees of pairs, (P, F), by axes of those that it is fitted on."""
    from sklearn.decomposition import PCA

    first, second = (view_PD.double().cpu().numpy() for view_PD in (first_PD, second_PD))
    views = np.concatenate([first[fitted_P], second[fitted_P]])
    axes = PCA(min(AXES, *views.shape), svd_solver="full").fit(views)
    first, second = axes.transform(first), axes.transform(second)
    difference = first - second
    products = first[:, :PRODUCTS, None] * second[:, None, :PRODUCTS]
    upper, strict = np.triu_indices(products.shape[1]), np.triu_indices(products.shape[1], 1)
    turned = products.swapaxes(1, 2)
    return np.concatenate(
        [
            difference, np.abs(difference),
            (products + turned)[:, *upper], (products - turned)[:, *strict],
        ],
        axis=1,
    )  # fmt: skip


def _explained(
    features: Sequence[np.ndarray], target_PT: np.ndarray, image_P: np.ndarray
) -> np.ndarray:
    """R^2 in percent, half of its interval, and the right directions in every third; (2 + M,).

    Features are by the half of the images that is fitted; image_P is the file of each pair.
    """
    target_PT = target_PT[:, (~np.isnan(target_PT)).sum(axis=0) > 1]
    variance_T = np.nanvar(target_PT, axis=0)
    target_PT, variance_T = target_PT[:, variance_T > STILL], variance_T[variance_T > STILL]
    score_PT = (target_PT - np.nanmean(target_PT, axis=0)) / np.sqrt(variance_T)
    if score_PT.shape[1] == 0:
        return np.full(2 + len(THIRDS), np.nan)
    predicted_PT = _predicted(features, score_PT, image_P)
    error_N, total_N = (
        np.bincount(image_P, weights=np.nansum(np.square(value_PT), axis=1))
        for value_PT in (score_PT - predicted_PT, score_PT)
    )
    share = error_N.sum() / total_N.sum()
    _, margin = mean_and_margin((error_N - share * total_N) / total_N.mean())  # delta method
    return np.array([100 * (1 - share), 100 * margin, *_directions(score_PT, predicted_PT)])


def _directions(score_PT: np.ndarray, predicted_PT: np.ndarray) -> list[float]:
    """Percent of the numbers on the right side of the mean, by thirds of their distance from it."""
    counts = [len(np.unique(column_P[~np.isnan(column_P)])) for column_P in score_PT.T]
    compared_PT = ~np.isnan(score_PT) & (np.array(counts) >= GRADES)
    if not compared_PT.any():
        return [float("nan")] * len(THIRDS)
    score, right = score_PT[compared_PT], (predicted_PT * score_PT > 0)[compared_PT]
    order = np.abs(score).argsort(kind="stable")
    return [100 * float(part.mean()) for part in np.array_split(right[order], len(THIRDS))]


def _predicted(
    features: Sequence[np.ndarray], score_PT: np.ndarray, image_P: np.ndarray
) -> np.ndarray:
    """Of every pair by a regression of the other half of the images; the mean where none fits."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    predicted_PT = np.zeros_like(score_PT)
    # Numbers that show in the same pairs are learned together.
    patterns_PU, pattern_U = np.unique(~np.isnan(score_PT), axis=1, return_inverse=True)
    for pattern, shown_P in enumerate(patterns_PU.T):
        of_T = np.flatnonzero(pattern_U.ravel() == pattern)
        for half, feature_PF in enumerate(features):
            fit_P, rest_P = shown_P & (image_P % 2 == half), image_P % 2 != half
            if fit_P.sum() > 1:
                penalties = RidgeCV([share * int(fit_P.sum()) for share in PENALTIES])
                ridge = make_pipeline(StandardScaler(), penalties)  # validated by leave-one-out
                ridge.fit(feature_PF[fit_P], score_PT[np.ix_(fit_P, of_T)])
                predicted_PT[np.ix_(rest_P, of_T)] = ridge.predict(feature_PF[rest_P]).reshape(
                    -1, len(of_T)
                )
    return predicted_PT
