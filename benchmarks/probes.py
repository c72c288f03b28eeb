"""The choice of a linear probe's penalty beside scikit-learn's `LogisticRegressionCV`.

    python benchmarks/probes.py [--rounds 2] [--threads 2]

The penalties of `mast evaluate`, tried on one split of generated features: correlated, positive
and badly scaled, as pooled encoders give them. scikit-learn has its defaults, `lbfgs` to a
tolerance of 1e-4 in at most 100 iterations, with `n_jobs=1` and as many threads as we have. It
tries every penalty; we stop once eight in a row did worse than the best one, but for the last row.
"""

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from measure import alternate, report
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegressionCV
from threadpoolctl import threadpool_limits
from torch import Tensor

from mast.evaluation.logistic import Target, Whitened, choose
from mast.evaluation.protocols import Linear

PENALTIES = Linear().penalties
CASES = {  # images, dimensions, tasks, classes of a task
    "10,000 × 512, one task of 10 classes": (10_000, 512, 1, 10),
    "1,024 × 160, ten tasks of 6 classes": (1_024, 160, 10, 6),
}
HELD_OUT = 0.1
CPU = torch.device("cpu")


def problem(images: int, dimensions: int, tasks: int, classes: int) -> tuple[Tensor, list[Target]]:
    """Features, and tasks that are the harder the later; a tenth of the images chooses."""
    latent = torch.randn(images, 64)
    mixed = latent @ (torch.randn(64, dimensions) * torch.logspace(0, -1.5, 64)[:, None])
    noisy = mixed + 0.3 * torch.randn(images, dimensions)
    features_ND = noisy.relu() * torch.logspace(-1, 0.5, dimensions)
    targets = []
    for task in range(tasks):
        scores_NC = latent @ (torch.randn(classes, 64) * torch.logspace(0, -1, 64)).T / 2
        labels_N = (scores_NC + (0.2 + 0.3 * task) * torch.randn_like(scores_NC)).argmax(dim=1)
        order_N = torch.randperm(images)
        held = round(HELD_OUT * images)
        targets.append(Target(labels_N, classes, ((order_N[held:], order_N[:held]),)))
    return features_ND, targets


def ours(features_ND: Tensor, targets: list[Target], patience: int) -> dict[str, Any]:
    """The choice of every task."""
    whitened = Whitened.of(features_ND)
    choices = [choose(whitened, target, PENALTIES, patience=patience) for target in targets]
    return {"validation": [round(choice.validation, 2) for choice in choices]}


def theirs(features_ND: Tensor, targets: list[Target]) -> dict[str, Any]:
    """scikit-learn's choice of every task, and how many fits its iterations did not suffice for."""
    reached, unconverged = [], 0
    for target in targets:
        ((fit_F, choose_V),) = target.splits
        model = LogisticRegressionCV(
            Cs=[1 / (len(fit_F) * penalty) for penalty in PENALTIES],
            cv=[(fit_F.numpy(), choose_V.numpy())],
            l1_ratios=(0.0,),
            refit=False,
            scoring="accuracy",
            use_legacy_attributes=False,
            n_jobs=1,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # counted
            model.fit(features_ND.numpy(), target.labels_N.numpy())
        reached.append(round(100 * float(model.scores_.max()), 2))
        unconverged += int((model.n_iter_ >= model.max_iter).sum())
    return {
        "validation": reached,
        "unconverged": f"{unconverged} of {model.n_iter_.size * len(targets)}",
    }


def record(reached: dict[str, Any], name: str, run: Callable[[], dict[str, Any]]) -> None:
    """Keep what a run says of itself."""
    reached[name] = run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    timed, chosen = {}, dict[str, dict[str, Any]]()
    for case, sizes in CASES.items():
        torch.manual_seed(0)
        given = problem(*sizes)
        work = {
            "scikit-learn": partial(theirs, *given),
            "mast": partial(ours, *given, patience=8),
            "mast, all penalties": partial(ours, *given, patience=len(PENALTIES)),
        }
        reached = chosen[case] = dict[str, Any]()
        recorded = {name: partial(record, reached, name, run) for name, run in work.items()}
        with threadpool_limits(options.threads):
            timed[case] = alternate(recorded, options.rounds, CPU)
    report("probes", CPU, vars(options), timed, "ms", "scikit-learn", chosen=chosen)


if __name__ == "__main__":
    main()
