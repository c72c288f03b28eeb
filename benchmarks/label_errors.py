"""How well likely wrong labels are found: labels of CIFAR-10 that were changed at random.

    python benchmarks/label_errors.py RUN --data cifar10/train [--images 10000] [--seeds 3]

So many images are drawn, and 5 % of their labels are changed to another class, uniformly at random;
CIFAR-10's own errors count as right. For the encoder of a run, and for the same encoder before its
training, probes give out-of-fold probabilities; from these alone, the functions of
`mast.evaluation.label_errors` and cleanlab, where it is installed, say which labels are wrong. Some
minutes on one core.
"""

import argparse
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS

from mast.config import configuration_of
from mast.core.checkpoint import write_json
from mast.core.run import RunFolder, provenance
from mast.data import open_canvas
from mast.encoders.extract import extract
from mast.evaluation.label_errors import NO_CLASS, confident_classes, out_of_fold, self_confidence
from mast.models import load_encoder
from mast.runs.start import load_untrained

SHARE = 0.05  # of the labels that are changed
FILTERS = ("both", "confident_learning", "prune_by_noise_rate", "prune_by_class")


Found = dict[str, Any]


def with_errors(label_N: np.ndarray, seed: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels of which a share is changed, and which ones those are."""
    random = np.random.default_rng(seed)
    changed_N = np.zeros(len(label_N), bool)
    changed_N[random.permutation(len(label_N))[: round(SHARE * len(label_N))]] = True
    other_N = (label_N + random.integers(1, classes, len(label_N))) % classes
    return np.where(changed_N, other_N, label_N), changed_N


def margin(label_N: np.ndarray, probability_NC: np.ndarray) -> np.ndarray:
    """Probability of the label minus that of the best other class."""
    others_NC = probability_NC.copy()
    others_NC[np.arange(len(label_N)), label_N] = -np.inf
    return self_confidence(label_N, probability_NC) - others_NC.max(axis=1)


def flagged(label_N: np.ndarray, probability_NC: np.ndarray) -> dict[str, np.ndarray]:
    """Which labels each method takes for wrong."""
    class_N = confident_classes(label_N, probability_NC)
    found = {"mast: off the diagonal": (class_N != label_N) & (class_N != NO_CLASS)}
    if find_spec("cleanlab") is not None:
        from cleanlab.filter import find_label_issues

        for name in FILTERS:
            found[f"cleanlab: {name}"] = find_label_issues(
                label_N, probability_NC, filter_by=name, n_jobs=1
            )
    return found


def scored(label_N: np.ndarray, changed_N: np.ndarray, probability_NC: np.ndarray) -> Found:
    """Percent of what is flagged, and of what is ranked first, that was changed."""
    found = flagged(label_N, probability_NC)
    suspect_S = np.flatnonzero(found["mast: off the diagonal"])
    first = {}
    for name, rank in (("self-confidence", self_confidence), ("margin", margin)):
        order_S = rank(label_N, probability_NC)[suspect_S].argsort(kind="stable")
        first[name] = 100 * float(changed_N[suspect_S[order_S[: changed_N.sum()]]].mean())
    return {
        "agreed": 100 * float((probability_NC.argmax(axis=1) == label_N).mean()),
        "changed": int(changed_N.sum()),
        "flagged": {
            name: {
                "images": int(flagged_N.sum()),
                "precision": 100 * float(changed_N[flagged_N].mean()),
                "recall": 100 * float(flagged_N[changed_N].mean()),
            }
            for name, flagged_N in found.items()
        },
        "first": first,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--data", required=True, help="CIFAR-10's training images")
    parser.add_argument("--images", type=int, default=10_000, help="that are drawn")
    parser.add_argument("--seeds", type=int, default=3, help="of changes and folds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if find_spec("cleanlab") is None:
        print("cleanlab is not installed: nothing to compare with (pip install cleanlab)")
    trained = load_encoder(options.run)
    encoders = {"trained": trained, "untrained": load_untrained(options.run).module}
    everything = open_canvas(options.data, trained.size)
    drawn_N = np.sort(np.random.default_rng(0).permutation(len(everything))[: options.images])
    canvases = everything.subset(drawn_N)
    ((task, label_N),) = canvases.targets.items()
    classes = len(canvases.classes[task])
    encoded: Mapping[str, torch.Tensor] = {
        name: extract(module, canvases, trained.size) for name, module in encoders.items()
    }
    config = configuration_of(RunFolder(options.run))
    result = {
        "setting": {
            "images": len(canvases), "seeds": options.seeds, "share": SHARE,
            "encoder": {
                "name": config.encoder.name, "options": config.encoder.options,
                "method": config.method, "views": config.views, "epochs": config.epochs,
                "size": config.size,
            },
        },
        "encoders": {name: [] for name in encoded},
        "provenance": provenance()
        | {"cleanlab": version("cleanlab") if find_spec("cleanlab") is not None else None},
    }  # fmt: skip
    for name, features_ND in encoded.items():
        for seed in range(options.seeds):
            changed = with_errors(label_N, seed, classes)
            probability_NC = out_of_fold(features_ND, changed[0], classes, seed)
            found = scored(*changed, probability_NC)
            print(name, seed, found)
            result["encoders"][name].append(found)
    write_json(RESULTS / "label_errors.json", result)


if __name__ == "__main__":
    main()
