"""How much accuracy depends on the coefficients of the loss.

S seeds, T tasks, C coefficients, M multipliers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from mast.analyses import figure
from mast.analyses.analysis import Arrays, Details, Grid, Subject
from mast.analyses.interval import mean_and_margin, with_margin
from mast.core.errors import UserError
from mast.studies.study import BASE, Study, band, collect

if TYPE_CHECKING:
    from mast.analyses.figure import Figure

MULTIPLIERS = (0.25, 0.5, 1.0, 2.0, 4.0)  # 1 is the base
SYMBOLS = {"masked_weight": "λ", "sparsity_weight": "λ₁", "kl_weight": "λ₂"}


@final
class Sensitivity(Study):
    """Top-1 of runs whose loss has one coefficient multiplied, for MAST.

    A coefficient that is 0 in the run's objective, or weighs nothing there, has no multiple and is
    left out. Every run has the encoder, operators, optimizer, seed, data and number of epochs of
    the base, and so sees as many images; only the one coefficient differs.

    Arrays:
        coefficients: (C,) fields of the objective: masked_weight (λ, the 25 in 25 d / K),
            sparsity_weight (λ₁ d K) and kl_weight (λ₂).
        values: (C,) in the run.
        left_out: those of the three that act with 0.
        multipliers: (M,) of the value.
        tasks: (T,) set and target.
        seeds: (S,) of the runs.
        accuracy: (S, T, C, M) top-1 in percent; NaN where a run is not finished.
        finished, planned: () numbers of runs.

    Reference:
        MAST, Figure 8.
    """

    name: ClassVar[str] = "sensitivity"

    def plan(self, subject: Subject) -> dict[str, dict[str, Any]]:
        """See `Study.plan`."""
        if not subject.coefficients:
            raise UserError("This run has no λ, λ₁ and λ₂: its method's loss has none.")
        acting = _acting(subject)
        if not acting:
            raise UserError("λ, λ₁ and λ₂ are all 0 in this run: there is nothing to multiply.")
        multiplied = {
            _trial(name, multiplier): {f"objective.{name}": value * multiplier}
            for name, value in acting.items()
            for multiplier in MULTIPLIERS
            if multiplier != 1
        }
        return {BASE: {}, **multiplied}

    def compute(self, subject: Subject) -> Arrays:
        """See `Analysis.compute`."""
        names = list(self.plan(subject))
        acting = _acting(subject)
        measured = collect(subject, names)
        run_CM = [[names.index(_trial(name, by)) for by in MULTIPLIERS] for name in acting]
        return {
            "coefficients": np.array(list(acting)),
            "values": np.array(list(acting.values())),
            "left_out": np.array([name for name in SYMBOLS if name not in acting], str),
            "multipliers": np.array(MULTIPLIERS),
            **measured,
            "accuracy": measured["accuracy"][:, :, run_CM],
        }

    @figure.styled
    def draw(self, arrays: Arrays) -> Figure:
        """See `Analysis.draw`: a curve of each coefficient, one panel a task."""
        drawn, axes = figure.panels(len(arrays["tasks"]), 2, 2.8)
        ticks = [f"×{multiplier:g}" for multiplier in arrays["multipliers"]]
        for task, axis in enumerate(axes):
            axis.set_xscale("log", base=2)
            for at, name in enumerate(arrays["coefficients"]):
                accuracy_SM = arrays["accuracy"][:, task, at]
                band(axis, arrays["multipliers"], accuracy_SM, _symbol(name), at)
            axis.set_xticks(arrays["multipliers"], ticks)
            axis.set_title(arrays["tasks"][task])
            axis.set_xlabel("multiple of the coefficient")
            axis.set_ylabel("top-1 (%)")
        figure.legend(drawn, axes, ncols=len(arrays["coefficients"]))
        return drawn

    def finding(self, arrays: Arrays) -> str:
        """See `Study.finding`: the greatest change as each coefficient is halved and doubled."""
        near_M = (arrays["multipliers"] >= 0.5) & (arrays["multipliers"] <= 2)
        everywhere_M = np.ones_like(near_M)
        parts = []
        for task, title in enumerate(arrays["tasks"]):
            moves = [
                f"{SYMBOLS[str(name)]} by {_largest(arrays, task, at, near_M)} "
                f"({_largest(arrays, task, at, everywhere_M)} from ×0.25 to ×4)"
                for at, name in enumerate(arrays["coefficients"])
            ]
            parts.append(f"{title} {', '.join(moves)}")
        return (
            "The most that top-1 moves from the base as a coefficient goes from ×0.5 to ×2: "
            f"{'; '.join(parts)}."
        )

    def caption(self, arrays: Arrays) -> str:
        """See `Analysis.caption`."""
        text = f"{self.headline(arrays)} The largest of several differences is partly chance."
        without = [SYMBOLS[str(name)] for name in arrays["left_out"]]
        if without:
            text += f" Left out, as it is 0 here and has no multiple: {', '.join(without)}."
        return text

    def details(self, arrays: Arrays) -> Details:
        """See `Analysis.details`: the accuracy at each multiple."""
        mean_TCM, margin_TCM = mean_and_margin(arrays["accuracy"])
        change_TCM, beside_TCM = _change(arrays)
        rows: tuple[tuple[str | float, ...], ...] = tuple(
            (
                str(title), _symbol(name), f"×{multiplier:g}",
                float(arrays["values"][at] * multiplier),
                *(float(table[task, at, m])
                  for table in (mean_TCM, margin_TCM, change_TCM, beside_TCM)),
            )
            for task, title in enumerate(arrays["tasks"])
            for at, name in enumerate(arrays["coefficients"])
            for m, multiplier in enumerate(arrays["multipliers"])
        )  # fmt: skip
        columns = ("task", "coefficient", "multiple", "value", "top-1 (%)", "±", "change (points)")
        return Details(Grid((*columns, "± of it"), rows))


def _acting(subject: Subject) -> dict[str, float]:
    """The coefficients that are not 0, by field, in the paper's order."""
    value = {name: subject.coefficients.get(f"objective.{name}", 0.0) for name in SYMBOLS}
    return {name: value[name] for name in SYMBOLS if value[name] != 0}


def _trial(name: str, multiplier: float) -> str:
    return BASE if multiplier == 1 else f"{name}-x{multiplier:g}"


def _symbol(name: str) -> str:
    return f"{SYMBOLS[str(name)]}, {name}"


def _change(arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Difference from the base of the same seed: mean and margin, both (T, C, M), in points."""
    base = list(arrays["multipliers"]).index(1)
    accuracy_STCM = arrays["accuracy"]
    return mean_and_margin(accuracy_STCM - accuracy_STCM[..., base : base + 1])


def _largest(arrays: Arrays, task: int, at: int, among_M: np.ndarray) -> str:
    change_M, margin_M = (table_TCM[task, at] for table_TCM in _change(arrays))
    known = np.flatnonzero(among_M & np.isfinite(change_M))
    moved = [m for m in known if change_M[m] != 0]
    if len(known) < 2:
        return "an amount not known yet"
    if not moved:
        return "nothing"
    most = max(moved, key=lambda m: abs(change_M[m]))
    return f"{with_margin(change_M[most], margin_M[most], '+')} points"
