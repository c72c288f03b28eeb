"""How accuracy grows with the length of training, for the run's method and its rival.

S seeds, T tasks, M methods, N numbers of epochs.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np

from mast.analyses import figure
from mast.analyses.analysis import Arrays, Details, Grid, Subject
from mast.core.errors import counted
from paper.analyses.base import curve, legend, with_margin
from paper.studies.rival import RIVAL
from paper.studies.study import BASE, Study, collect, over_seeds

SHARES = (0.25, 0.5, 1.0, 2.0)  # of the run's epochs


@final
class Epochs(Study):
    """Top-1 after longer and shorter training, compared with the rival.

    Two runs of the same number of epochs see as many images, with the same encoder, operators,
    seed, data and, but for a contrast, optimizer and projector. The rival (`paper.studies.rival`),
    VICReg, has the objective and the schedule of its own recipe: all operators from the start.

    Arrays:
        methods: (M,) the run's, and its rival's.
        epochs: (N,) ascending; a quarter, half, once and twice those of the base, 1 or more.
        tasks: (T,) set and target.
        seeds: (S,) of the runs.
        accuracy: (M, S, T, N) top-1 in percent; NaN where a run is not finished.
        finished, planned: () numbers of runs.

    Reference:
        MAST, Table 8.
    """

    name: ClassVar[str] = "epochs"

    def plan(self, subject: Subject) -> dict[str, dict[str, Any]]:
        base, budgets = self._budgets(subject)
        runs: dict[str, dict[str, Any]] = {BASE: {}}
        for method in _methods(subject):
            for epochs in budgets:
                changes = {} if method == subject.method else {"method": method}
                if changes or epochs != base:
                    runs[_trial(subject, method, epochs, base)] = {**changes, "epochs": epochs}
        return runs

    def compute(self, subject: Subject) -> Arrays:
        names = list(self.plan(subject))
        base, budgets = self._budgets(subject)
        methods = _methods(subject)
        measured = collect(self.trials, names)
        run_MN = [
            [names.index(_trial(subject, method, epochs, base)) for epochs in budgets]
            for method in methods
        ]
        return {
            "methods": np.array(methods),
            "epochs": np.array(budgets),
            **measured,
            "accuracy": np.moveaxis(measured["accuracy"][:, :, run_MN], 2, 0),
        }

    def _budgets(self, subject: Subject) -> tuple[int, list[int]]:
        """The epochs of the base, which may be cheaper than the run, and all that are tried."""
        trained = [trial.epochs for trial in self.trials if trial.name == BASE and trial.epochs]
        base = trained[0] if trained else subject.epochs
        return base, sorted({max(1, round(share * base)) for share in SHARES})

    @figure.styled
    def draw(self, arrays: Arrays) -> figure.Figure:
        """A curve of each method, one panel per task."""
        drawn, axes = figure.panels(len(arrays["tasks"]), 2, 2.8)
        for task, axis in enumerate(axes):
            axis.set_xscale("log", base=2)
            for at, method in enumerate(arrays["methods"]):
                mean_N, margin_N = over_seeds(arrays["accuracy"][at][:, task])
                ink, style, name = figure.color(at), figure.STYLES[at], str(method)
                curve(axis, arrays["epochs"], mean_N, ink, style, 1.5, name, margin_N)
            axis.set_xticks(arrays["epochs"], [str(epochs) for epochs in arrays["epochs"]])
            axis.set_title(arrays["tasks"][task])
            axis.set_xlabel("epochs of pretraining")
            axis.set_ylabel("top-1 (%)")
        legend(drawn, axes, ncols=len(arrays["methods"]))
        return drawn

    def finding(self, arrays: Arrays) -> str:
        """The shortest and the longest training, and the rival's."""
        parts = []
        for task, title in enumerate(arrays["tasks"]):
            clauses = [
                _at_the_ends(str(method), arrays["epochs"], arrays["accuracy"][at][:, task])
                for at, method in enumerate(arrays["methods"])
            ]
            if len(clauses) > 1:
                clauses.insert(0, _compared(arrays, task))
            parts.append(f"{title}: {'; '.join(clauses)}")
        return f"Top-1 on {'. On '.join(parts)}."

    def details(self, arrays: Arrays) -> Details:
        """One row per task, method and number of epochs."""
        rows = []
        for at, method in enumerate(arrays["methods"]):
            ends_2TN = np.stack(over_seeds(arrays["accuracy"][at]))
            rows += [
                (str(title), str(method), epochs, *map(float, ends_2TN[:, task, n]))
                for task, title in enumerate(arrays["tasks"])
                for n, epochs in enumerate(arrays["epochs"].tolist())
            ]
        return Details(Grid(("task", "method", "epochs", "top-1 (%)", "±"), tuple(sorted(rows))))


def _methods(subject: Subject) -> list[str]:
    return list(dict.fromkeys([subject.method, RIVAL]))


def _trial(subject: Subject, method: str, epochs: int, base: int) -> str:
    if method != subject.method:
        return f"{method}-epochs-{epochs}"
    return BASE if epochs == base else f"epochs-{epochs}"


def _at_the_ends(method: str, epochs_N: np.ndarray, accuracy_SN: np.ndarray) -> str:
    mean_N, margin_N = over_seeds(accuracy_SN)
    known_N = np.flatnonzero(np.isfinite(mean_N))
    ends = [
        f"{with_margin(mean_N[at], margin_N[at])} % after {counted(epochs_N[at], 'epoch')}"
        for at in dict.fromkeys(known_N[:1].tolist() + known_N[-1:].tolist())
    ]
    return f"{method} {' and '.join(ends) or 'not measured yet'}"


def _compared(arrays: Arrays, task: int) -> str:
    """How the run's method compares with its rival of as many epochs and the same seed."""
    run_SN, rival_SN = arrays["accuracy"][0][:, task], arrays["accuracy"][1][:, task]
    lead_N, margin_N = over_seeds(run_SN - rival_SN)
    known_N = np.flatnonzero(np.isfinite(lead_N))
    if len(known_N) == 0:
        return "no two runs of one length"
    last = known_N[-1]
    method, rival = arrays["methods"]
    clear_N = lead_N - np.nan_to_num(margin_N) > 0
    beyond = " beyond the 95 % interval" if np.isfinite(margin_N[known_N]).all() else ""
    return (
        f"{method} minus {rival} {with_margin(lead_N[last], margin_N[last], '+')} points after "
        f"{counted(arrays['epochs'][last], 'epoch')}, ahead{beyond} at "
        f"{int(clear_N[known_N].sum())} of {len(known_N)} lengths"
    )
