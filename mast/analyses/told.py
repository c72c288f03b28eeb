"""How much of what an operator did can be told from two views, in each space that a run has.

P pairs of views, D dimensions of a space, F features, T numbers of an operator, O operators,
S spaces, M thirds, N images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

import numpy as np
from torch import Tensor

from mast.analyses import figure
from mast.analyses.analysis import Analysis, Arrays, Details, Grid, Subject
from mast.analyses.interval import mean_and_margin
from mast.analyses.spaces import spaces_of

if TYPE_CHECKING:
    from mast.analyses.figure import Figure

THIRDS = ("small", "middle", "large")
PENALTIES = (0.03, 0.3, 3.0)  # times the number of images, for features of variance 1
FEWEST = 8  # images, so that a regression has something to learn from
STILL = 1e-6  # variance below which a number does not vary
NOTHING = 1e-6  # weight of a dimension that does not count


@final
class Told(Analysis):
    """What the views of a pair say of how they were made, read by a ridge regression.

    Every image is drawn several times as two views, as pretraining draws them. From how the two
    differ in a space (each dimension's difference, and its absolute value) a regression learns on
    half of the images what their records say, in standard scores, and is tested on the other half;
    then the halves change places. What nobody could tell, such as the hue of a gray view, is asked
    of no space. What is told of an operator has not been forgotten.

    Arrays:
        operators: (O,) names.
        spaces: (S,) names: the representation, the whole embedding, and for each distinct mask
            what is invariant to its operators ("ignoring …") and what is exempt ("matching …").
        widths: (S,) their dimensions.
        block: (O,) position in `spaces` of what is exempt from the operator; -1 where nothing is.
        told: (O, S) percent of the variance that is explained (R^2), on images that were not
            learned from; NaN where nothing varies.
        margin: (O, S) half of its 95 % interval over images.
        by_change: (O, S, M) likewise, in thirds of the pairs by how far they are from the mean of
            what was drawn; NaN where a third is empty.

    Reference:
        Ours; the question that the exempt blocks of `mast` are trained to answer.
    """

    def lacking(self, subject: Subject) -> str | None:
        """See `Analysis.lacking`."""
        if subject.images is None or subject.pairs is None:
            return "There are no images to look at: give data."
        if len(subject.images.names) < FEWEST:
            return f"It needs {FEWEST} images or more, here are {len(subject.images.names)}."
        if subject.embed is not None and not bool(subject.embed(None).isfinite().all()):
            return "The embedding is not finite: the run diverged."
        return None

    def compute(self, subject: Subject) -> Arrays:
        """See `Analysis.compute`."""
        assert subject.pairs is not None
        pairs = subject.pairs()
        spaces = spaces_of(subject, pairs.embedding[0].shape[1])
        views = [pairs.representation] + [
            (first_PD[:, space.weight_D > NOTHING], second_PD[:, space.weight_D > NOTHING])
            for space in spaces
            for first_PD, second_PD in [pairs.embedding]
        ]
        features = [_features(first_PD, second_PD) for first_PD, second_PD in views]
        told_OSX = np.array(
            [
                [_explained(feature_PF, target_PT, pairs.image_P) for feature_PF in features]
                for target_PT in pairs.differences.values()
            ]
        )
        exempt_from = [(), *(space.exempt_from for space in spaces)]
        block_O = [
            next((at for at, names in enumerate(exempt_from) if operator in names), -1)
            for operator in pairs.differences
        ]
        return {
            "operators": np.array(list(pairs.differences)),
            "spaces": np.array(["representation", *(space.name for space in spaces)]),
            "widths": np.array([first_PD.shape[1] for first_PD, _ in views]),
            "block": np.array(block_O),
            "told": told_OSX[:, :, 0],
            "margin": told_OSX[:, :, 1],
            "by_change": told_OSX[:, :, 2:],
        }

    @figure.styled
    def draw(self, arrays: Arrays) -> Figure:
        """See `Analysis.draw`: a panel an operator, a line a space; its block is thick."""
        operators, spaces = arrays["operators"], arrays["spaces"]
        drawn, axes = figure.panels(len(operators), 3, 2.4, sharey=True)
        at_M = np.arange(len(THIRDS))
        for row, axis in enumerate(axes):
            for column, space in enumerate(spaces):
                style = figure.STYLES[column // len(figure.COLORS) % len(figure.STYLES)]
                figure.curve(
                    axis, at_M, np.clip(arrays["by_change"][row, column], 0, None), str(space),
                    figure.color(column), style, 2.5 if column == arrays["block"][row] else 1.2,
                    legend_label=str(space),
                )  # fmt: skip
            axis.set_title(figure.words(str(operators[row])))
            axis.set_xticks(at_M, THIRDS)
            axis.set_xlim(-0.2, len(THIRDS) - 0.8)
            axis.set_ylim(-3, 103)
        for axis in axes[::3]:
            axis.set_ylabel("told (%)")
        figure.legend(drawn, axes, ncols=2)
        return drawn

    def caption(self, arrays: Arrays) -> str:
        """See `Analysis.caption`: of each block its own operators, then the others."""
        told_OS, block_O = arrays["told"], arrays["block"]
        names = [figure.words(str(name)) for name in arrays["operators"]]
        varies_O: np.ndarray = np.isfinite(told_OS[:, 0])
        sentences = []
        if (varies_O & (block_O >= 0)).any():
            of_blocks = [
                f"{names[row]} {_percent(told_OS[row, block])} from "
                f"{arrays['widths'][block]} of {arrays['widths'][1]} dimensions (the others "
                f"{_percent(told_OS[row, block - 1])}, the representation "
                f"{_percent(told_OS[row, 0])})"
                for row, block in enumerate(block_O)
                if block >= 0 and varies_O[row]
            ]
            sentences.append(f"What its exempt dimensions tell: {'; '.join(of_blocks)}.")
        others = [
            f"{names[row]} {_percent(told_OS[row, 0])} and {_percent(told_OS[row, 1])}"
            for row in range(len(names))
            if block_O[row] < 0 and varies_O[row]
        ]
        if others:
            start = "Of the other operators the" if sentences else "The"
            sentences.append(
                f"{start} representation and the whole embedding tell: {'; '.join(others)}."
            )
        still = [name for name, varies in zip(names, varies_O, strict=True) if not varies]
        if still:
            sentences.append(f"Nothing varies in what was drawn for {', '.join(still)}.")
        return " ".join(sentences)

    def details(self, arrays: Arrays) -> Details:
        """See `Analysis.details`: what each space tells of each operator, with the interval."""
        titles = [
            f"{space} ({width})"
            for space, width in zip(arrays["spaces"], arrays["widths"], strict=True)
        ]
        rows = tuple(
            (figure.words(str(name)), *told_S)
            for name, told_S in zip(arrays["operators"], arrays["told"].tolist(), strict=True)
        )
        return Details(Grid(("told of (% of the variance)", *titles), rows))


def _percent(told: float) -> str:
    return f"{max(told, 0):.0f} %"


def _features(first_PD: Tensor, second_PD: Tensor) -> np.ndarray:
    """How two views differ, whichever comes first and in which direction, (P, 2 D)."""
    difference_PD = (first_PD - second_PD).double().cpu().numpy()
    return np.concatenate([difference_PD, np.abs(difference_PD)], axis=1)


def _explained(feature_PF: np.ndarray, target_PT: np.ndarray, image_P: np.ndarray) -> np.ndarray:
    """R^2 in percent, half of its interval, and R^2 in every third; (2 + M,)."""
    score_PT = _standard(target_PT)
    if score_PT.shape[1] == 0:
        return np.full(2 + len(THIRDS), np.nan)
    squared_PT = np.square(score_PT - _predicted(feature_PF, score_PT, image_P))
    error_N1 = np.array(
        [_mean(squared_PT[image_P == image]) for image in range(int(image_P.max()) + 1)]
    )
    mean, margin = mean_and_margin(error_N1)
    distance_P = np.array([_mean(np.square(score_T)) for score_T in score_PT])
    edges = np.nanquantile(distance_P, (1 / 3, 2 / 3))
    third_P = np.searchsorted(edges, distance_P, side="right")  # ties go up; NaN after all
    thirds = []
    for third in range(len(THIRDS)):
        chosen_P = (third_P == third) & ~np.isnan(distance_P)
        total = _mean(distance_P[chosen_P])
        thirds.append(100 * (1 - _mean(squared_PT[chosen_P]) / total) if total else np.nan)
    return np.array([100 * (1 - mean), 100 * margin, *thirds])


def _mean(value_X: np.ndarray) -> float:
    """The mean of what is not NaN; NaN of nothing."""
    there_X = value_X[~np.isnan(value_X)]
    return float(there_X.mean()) if there_X.size else float("nan")


def _standard(target_PT: np.ndarray) -> np.ndarray:
    """Standard scores of the numbers that vary, NaN where they are NaN."""
    asked_T = (~np.isnan(target_PT)).any(axis=0)
    target_PT = target_PT[:, asked_T]
    variance_T = np.nanvar(target_PT, axis=0)
    varies_T = variance_T > STILL
    target_PT, variance_T = target_PT[:, varies_T], variance_T[varies_T]
    return (target_PT - np.nanmean(target_PT, axis=0)) / np.sqrt(variance_T)


def _predicted(feature_PF: np.ndarray, score_PT: np.ndarray, image_P: np.ndarray) -> np.ndarray:
    """Of every pair by a regression of the other half of the images; the mean where none fits."""
    predicted_PT = np.zeros_like(score_PT)
    half_P = image_P % 2
    asked_PT = ~np.isnan(score_PT)
    # Numbers that are asked of the same pairs are learned together.
    patterns_PU, pattern_T = np.unique(asked_PT, axis=1, return_inverse=True)
    for pattern, asked_P in enumerate(patterns_PU.T):
        of_T = np.flatnonzero(pattern_T == pattern)
        for half in (0, 1):
            fit_P = asked_P & (half_P == half)
            if fit_P.sum() > 1:
                predict = _regression(feature_PF[fit_P], score_PT[np.ix_(fit_P, of_T)])
                predicted_PT[np.ix_(half_P != half, of_T)] = predict(feature_PF[half_P != half])
    return predicted_PT


def _regression(feature_NF: np.ndarray, score_NT: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A ridge regression over standardised features, its penalty by leave-one-out validation."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    penalties = [share * len(feature_NF) for share in PENALTIES]
    fitted = make_pipeline(StandardScaler(), RidgeCV(penalties)).fit(feature_NF, score_NT)
    return lambda feature_PF: fitted.predict(feature_PF).reshape(len(feature_PF), -1)
