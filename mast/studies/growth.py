"""How accuracy grows with the number of operators, the least correlated ones first.

S seeds, T tasks, K operators, N sizes of the set of operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from mast.analyses import figure
from mast.analyses.analysis import Arrays, Details, Grid, Subject
from mast.analyses.interval import mean_and_margin, with_margin
from mast.analyses.masks import Masks, cosines, dead_masks, mean_cosine_to_others
from mast.augment.presets import MAST5
from mast.core.errors import UserError
from mast.studies.study import BASE, Study, band, collect

if TYPE_CHECKING:
    from mast.analyses.figure import Figure


@final
class Growth(Study):
    """Top-1 of runs with more and more of the run's operators.

    An operator's correlation is the mean cosine of its mask with the other masks of the run. Where
    the run has the five operators of MAST-5 and others, growth starts with the five and adds the
    others, the least correlated first; otherwise it starts with the least correlated alone. Every
    run has the encoder, objective, optimizer, seed, data and number of epochs of the base, and so
    sees as many images; only the operators of its views differ.

    Arrays:
        operators: (K,) names in the order in which they are added.
        mean_cosine: (K,) of each one's mask with the others, from 0 to 1.
        counts: (N,) numbers of operators of the runs, ascending to K.
        tasks: (T,) set and target.
        seeds: (S,) of the runs.
        accuracy: (S, T, N) top-1 in percent; NaN where a run is not finished.
        finished, planned: () numbers of runs.

    Reference:
        MAST, Figure 4b.
    """

    name: ClassVar[str] = "growth"

    def plan(self, subject: Subject) -> dict[str, dict[str, Any]]:
        """See `Study.plan`."""
        missing = Masks().lacking(subject)
        if missing is not None:
            raise UserError(f"{missing} Growth adds operators by the correlation of their masks.")
        if len(subject.operators) < 2:
            raise UserError("This run has one operator: there is nothing to add.")
        if dead := dead_masks(subject):
            raise UserError(
                f"The mask of {', '.join(dead)} is all zero, so that its correlation says nothing."
            )
        operators, _, start = _order(subject)
        grown = {
            f"grow-{count}-{operators[count - 1]}": {"operators": list(operators[:count])}
            for count in range(start, len(operators))
        }
        return {BASE: {}, **grown}

    def compute(self, subject: Subject) -> Arrays:
        """See `Analysis.compute`."""
        base, *grown = self.plan(subject)
        operators, mean_K, start = _order(subject)
        return {
            "operators": np.array(operators),
            "mean_cosine": mean_K,
            "counts": np.arange(start, len(operators) + 1),
            **collect(subject, [*grown, base]),
        }

    @figure.styled
    def draw(self, arrays: Arrays) -> Figure:
        """See `Analysis.draw`: accuracy over the number of operators, one panel a task."""
        drawn, axes = figure.panels(len(arrays["tasks"]), 2, 3.4)
        labels = _labels(arrays)
        for task, axis in enumerate(axes):
            band(axis, arrays["counts"], arrays["accuracy"][:, task], "top-1", task)
            axis.set_xticks(
                arrays["counts"], labels, rotation=45, ha="right", rotation_mode="anchor"
            )
            axis.set_title(arrays["tasks"][task])
            axis.set_xlabel("number of operators, and which one is added")
            axis.set_ylabel("top-1 (%)")
        return drawn

    def finding(self, arrays: Arrays) -> str:
        """See `Study.finding`: from the first operators to all of them, and where it is best."""
        parts = []
        mean_TN, margin_TN = mean_and_margin(arrays["accuracy"])
        labels = _labels(arrays)
        for task, title in enumerate(arrays["tasks"]):
            known_N = np.flatnonzero(np.isfinite(mean_TN[task]))
            if len(known_N) == 0:
                parts.append(f"{title} was not measured")
                continue
            first, last, best = known_N[0], known_N[-1], int(np.nanargmax(mean_TN[task]))
            ends = [
                f"{with_margin(mean_TN[task, at], margin_TN[task, at])} % "
                f"with {arrays['counts'][at]}"
                for at in (first, last)
            ]
            parts.append(f"{title} goes from {ends[0]} to {ends[1]}, best at “{labels[best]}”")
        return f"Top-1 by the number of operators: {'; '.join(parts)}."

    def caption(self, arrays: Arrays) -> str:
        """See `Analysis.caption`."""
        return (
            f"{self.headline(arrays)} Operators are added in the order of their masks' mean cosine "
            f"with the others, up to {arrays['mean_cosine'][-1]:.2f} for the last."
        )

    def details(self, arrays: Arrays) -> Details:
        """See `Analysis.details`: one row a run and task."""
        mean_TN, margin_TN = mean_and_margin(arrays["accuracy"])
        rows = tuple(
            (str(title), label, float(arrays["mean_cosine"][count - 1]),
             float(mean_TN[task, at]), float(margin_TN[task, at]))
            for task, title in enumerate(arrays["tasks"])
            for at, (count, label) in enumerate(
                zip(arrays["counts"].tolist(), _labels(arrays), strict=True)
            )
        )  # fmt: skip
        columns = ("task", "operators", "mean cosine of the last", "top-1 (%)", "±")
        return Details(Grid(columns, rows))


def _order(subject: Subject) -> tuple[tuple[str, ...], np.ndarray, int]:
    """Operators in the order in which they are added, the mean cosine of each, and how many of
    them growth starts with."""
    assert subject.mask_DK is not None
    mean_K = mean_cosine_to_others(cosines(subject.mask_DK.detach().cpu().double().numpy().T))
    cosine = dict(zip(subject.operators, mean_K.tolist(), strict=True))
    more = set(MAST5) < set(subject.operators)
    start = [name for name in subject.operators if more and name in MAST5]
    added = sorted(
        (name for name in subject.operators if name not in start), key=cosine.__getitem__
    )
    order = (*start, *added)
    return order, np.array([cosine[name] for name in order]), max(len(start), 1)


def _labels(arrays: Arrays) -> list[str]:
    """What each run adds to the one before."""
    first, *later = arrays["counts"].tolist()
    names = [figure.words(name) for name in arrays["operators"]]
    start = f"{first}: MAST-{first}" if first == len(MAST5) else f"{first}: {names[0]}"
    return [start, *(f"{count}: + {names[count - 1]}" for count in later)]
