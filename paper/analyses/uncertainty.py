"""Which images the model is unsure of, and whether that follows what makes them hard.

N images, P side of a thumbnail in pixels, O operators that are tried, S magnitudes, T tasks,
C classes of all tasks.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from mast.analyses import figure
from mast.analyses.analysis import (
    NO_IMAGES,
    Arrays,
    Details,
    Gallery,
    Grid,
    Subject,
    mean_and_margin,
)
from mast.augment import OPERATORS
from mast.search.outliers import rescaled
from paper.analyses.base import PaperAnalysis, curve, entry, with_margin
from paper.analyses.invariance import MAGNITUDES

GALLERY_SIZE = 12  # images in a gallery


@final
class Uncertainty(PaperAnalysis):
    """The trace of the predicted covariance, rescaled to [0, 1].

    Arrays:
        names: (N,) of the images.
        pictures: (N, P, P, 3) thumbnails, uint8.
        score: (N,) uncertainty of the images; 0 is the smallest and 1 the largest trace among them
            and their changed copies.
        trace: (N,) before the rescaling.
        operators: (O,) names of what was done to the images.
        magnitudes: (S,) from 0, the images as they are, to 1.
        score_changed: (O, S) mean score of the changed images.
        margin_changed: (O, S) half of its 95 % interval over images.
        correlation: (O,) rank correlation of an image's uncertainty with the magnitude, from -1
            to 1, the mean over images; an image whose uncertainty does not move has 0.
        correlation_margin: (O,) half of its 95 % interval.
        tasks: (T,) names of what the images are labelled with.
        class_task: (C,) the task of each class.
        class_name: (C,) its name.
        class_score: (C,) mean score of its images.
        class_spread: (C,) their standard deviation.
        class_accuracy: (C,) linear accuracy in percent; NaN where it was not measured.
        class_correlation: (T,) rank correlation of the two over the classes of a task; NaN for
            fewer than three.
        error_found: (T,) percent of pairs of a wrongly and a rightly classified image in which the
            wrong one has the higher uncertainty (50 by chance); NaN where there is no such pair.

    Reference:
        MAST, Figure 5.
    """

    def lacking(self, subject: Subject) -> str | None:
        if subject.images is None:
            return NO_IMAGES
        if subject.extras.get("uncertainty") is None:
            return (
                "This run predicts no uncertainty: its method has none, or it was trained without "
                "objective.uncertainty."
            )
        return None

    def compute(self, subject: Subject) -> Arrays:
        assert subject.images is not None
        images, uncertainty = subject.images, subject.extras["uncertainty"]
        names = [n for n in subject.trained_with if n in OPERATORS and OPERATORS[n].graded]
        trace_N = uncertainty(None).double().numpy()
        changed_OSN = np.array(
            [
                [trace_N, *(uncertainty((name, m)).double().numpy() for m in MAGNITUDES)]
                for name in names
            ]
        ).reshape(len(names), 1 + len(MAGNITUDES), len(trace_N))
        everything = np.concatenate([trace_N, changed_OSN.ravel()])
        score_N, score_OSN = (rescaled(trace, everything) for trace in (trace_N, changed_OSN))
        correlation_ON = np.array([_rank_correlation(row_SN) for row_SN in changed_OSN])
        correlation_ON = correlation_ON.reshape(len(names), len(trace_N))
        score_OS, margin_OS = mean_and_margin(np.moveaxis(score_OSN, 2, 0))
        correlation_O, margin_O = mean_and_margin(correlation_ON.T)
        return {
            "names": np.array(images.names),
            "pictures": images.thumbnails_NPP3,
            "score": score_N,
            "trace": trace_N,
            "operators": np.array(names, str),
            "magnitudes": np.array([0.0, *MAGNITUDES]),
            "score_changed": score_OS,
            "margin_changed": margin_OS,
            "correlation": correlation_O,
            "correlation_margin": margin_O,
            **_by_class(subject, score_N),
        }

    @figure.styled
    def draw(self, arrays: Arrays) -> figure.Figure:
        """Against magnitude, against accuracy, and the extreme images."""
        known = np.isfinite(arrays["class_accuracy"])
        drawn = figure.empty(5.9)
        parts: Any = drawn.subfigures(2, 1, height_ratios=(3, 2.4))
        above, below = parts
        strength, classes = above.subplots(1, 2)
        for at, name in enumerate(arrays["operators"]):
            label = figure.words(name)
            curve(
                strength, arrays["magnitudes"], arrays["score_changed"][at],
                figure.color(at), figure.line_style(at), 1.5, label, arrays["margin_changed"][at],
            )  # fmt: skip
        strength.set_xlabel("magnitude of the operator")
        strength.set_ylabel("mean uncertainty, 0 to 1")
        if len(arrays["operators"]):
            figure.legend_below(strength)
        for at, task in enumerate(arrays["tasks"]):
            rows = np.flatnonzero(known & (arrays["class_task"] == task))
            for row in rows:
                place = (arrays["class_accuracy"][row], arrays["class_score"][row])
                classes.errorbar(
                    *place, yerr=arrays["class_spread"][row], fmt="none",
                    ecolor=figure.color(at), elinewidth=0.8, alpha=0.25,
                )  # fmt: skip
                classes.plot(
                    *place, "o", color=figure.color(at), markersize=5,
                    label=entry(task) if row == rows[0] else None,
                )  # fmt: skip
        if known.any():
            classes.set_xlabel("linear accuracy of the class (%)")
            classes.set_ylabel("uncertainty, mean and deviation")
            figure.legend_below(classes)
        else:
            classes.set_axis_off()
        order_N = arrays["score"].argsort()
        shown = min(8, len(order_N))
        grid = below.subplots(2, shown, squeeze=False)
        for axes, title, chosen in (
            (grid[0], "least certain", order_N[::-1][:shown]),
            (grid[1], "most certain", order_N[:shown]),
        ):
            for axis, at in zip(axes, chosen, strict=True):
                axis.imshow(arrays["pictures"][at])
                axis.set_title(f"{arrays['score'][at]:.2f}", fontweight="normal")
                figure.plate(axis)
            axes[0].set_ylabel(title)
        return drawn

    def caption(self, arrays: Arrays) -> str:
        if np.ptp(arrays["trace"]) == 0:
            return "The predicted uncertainty is the same for every image, so it says nothing."
        correlations = [
            f"{figure.words(name)} {with_margin(value, margin, '+', 2)}"
            for name, value, margin in zip(
                arrays["operators"], arrays["correlation"], arrays["correlation_margin"],
                strict=True,
            )
        ]  # fmt: skip
        text = ""
        if correlations:
            rising = int((arrays["correlation"] - arrays["correlation_margin"] > 0).sum())
            text = (
                f"Uncertainty rises with the magnitude of {rising} of {len(correlations)} "
                f"operators. Rank correlations (± 95 % over images): {', '.join(correlations)}."
            )
        for task, correlation, ranked_right in zip(
            arrays["tasks"], arrays["class_correlation"], arrays["error_found"], strict=True
        ):
            clauses = []
            if np.isfinite(correlation):
                clauses.append(f"rank correlation with accuracy over classes {correlation:+.2f}")
            if np.isfinite(ranked_right):
                clauses.append(
                    "a wrongly classified image is less certain than a right one in "
                    f"{ranked_right:.0f} % of pairs"
                )
            if clauses:
                text += f" {figure.capital(task)}: {'; '.join(clauses)}."
        return text.strip() or "No operator has a magnitude; see the images."

    def details(self, arrays: Arrays) -> Details:
        """Galleries of the extremes, correlations and classes."""
        order_N = arrays["score"].argsort(kind="stable")
        galleries = tuple(
            Gallery(title, arrays["pictures"][chosen],
                    tuple(f"{arrays['names'][at]}: {arrays['score'][at]:.3f}" for at in chosen))
            for title, chosen in (
                ("Least certain", order_N[::-1][:GALLERY_SIZE]),
                ("Most certain", order_N[:GALLERY_SIZE]),
            )
        )  # fmt: skip
        rows = tuple(
            (str(task), str(name), score, spread, accuracy)
            for task, name, score, spread, accuracy in zip(
                *(arrays[f"class_{key}"].tolist()
                  for key in ("task", "name", "score", "spread", "accuracy")),
                strict=True,
            )
        )  # fmt: skip
        columns = ("task", "class", "uncertainty", "deviation", "linear accuracy (%)")
        return Details(Grid(columns, rows) if rows else None, galleries)


def _rank_correlation(trace_SN: np.ndarray) -> np.ndarray:
    """Spearman's correlation of each image's traces with their order, (N,)."""
    from scipy.stats import rankdata

    rank_SN = rankdata(trace_SN, axis=0)
    rank_SN = rank_SN - rank_SN.mean(axis=0)
    order_S1 = np.arange(len(trace_SN), dtype=float)[:, None]
    order_S1 -= order_S1.mean()
    norm_N = np.sqrt((rank_SN**2).sum(axis=0) * (order_S1**2).sum())
    return np.asarray((rank_SN * order_S1).sum(axis=0) / np.maximum(norm_N, 1e-12))


def _by_class(subject: Subject, score_N: np.ndarray) -> Arrays:
    from scipy.stats import mannwhitneyu, spearmanr

    assert subject.images is not None
    images = subject.images
    rows: list[tuple[str, str, float, float, float]] = []
    correlations, error_found = [], []
    for task, label_N in images.labels.items():
        hit_N = subject.extras.get("hits", {}).get(task, np.full(len(label_N), np.nan))
        of_task = []
        for at, name in enumerate(images.classes[task]):
            members_N = label_N == at
            if members_N.any():
                accuracy = 100 * float(hit_N[members_N].mean())
                mean, spread = float(score_N[members_N].mean()), float(score_N[members_N].std())
                of_task.append((task, name, mean, spread, accuracy))
        rows += of_task
        accuracy_C = np.array([row[4] for row in of_task])
        score_C = np.array([row[2] for row in of_task])
        varied = len(of_task) > 2 and np.ptp(accuracy_C) > 0 and np.ptp(score_C) > 0
        correlations.append(float(spearmanr(score_C, accuracy_C)[0]) if varied else float("nan"))
        # Percent of (wrong, right) pairs in which the wrong one scores higher; ties count half.
        wrong, right = score_N[hit_N == 0], score_N[hit_N == 1]
        pairs = len(wrong) * len(right)
        above = mannwhitneyu(wrong, right).statistic if pairs else np.nan
        error_found.append(float(100 * above / max(pairs, 1)))
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    kinds = (str, str, float, float, float)
    keys = ("task", "name", "score", "spread", "accuracy")
    return {
        "tasks": np.array(list(images.labels), str),
        **{
            f"class_{key}": np.array(column, kind)
            for key, column, kind in zip(keys, columns, kinds, strict=True)
        },
        "class_correlation": np.array(correlations, float),
        "error_found": np.array(error_found, float),
    }
