"""How well wrong labels are found that people gave: those of CIFAR-10N.

    python benchmarks/label_errors.py IMAGES LABELS [--drawn 10000] [--seeds 3]

IMAGES and LABELS are those of `judged_pairs.py`. So many training images are drawn; what is wrong
is every label that differs from CIFAR-10's own, of one person (`random`, 17 %), of the majority of
three (`aggre`, 9 %) or the worst of three (`worse`, 40 %; Wei et al., Learning with Noisy Labels
Revisited, ICLR 2022). Probes on the default encoder's features give out-of-fold probabilities; from
these alone, `mast.evaluation.label_errors` and cleanlab, where it is installed, say which labels
are wrong. Ten minutes on one core.
"""

import argparse
import itertools
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from judged_pairs import human_labels, in_order
from measure import RESULTS

import mast
from mast.core.checkpoint import write_json
from mast.core.run import provenance
from mast.evaluation.label_errors import (
    NO_CLASS,
    confident_classes,
    likely_errors,
    out_of_fold,
    self_confidence,
)
from mast.models.pretrained import DEFAULT

LABELS = ("aggre_label", "random_label1", "worse_label")
FILTERS = ("both", "confident_learning", "prune_by_noise_rate", "prune_by_class")


Found = dict[str, Any]


def margin(label_N: np.ndarray, probability_NC: np.ndarray) -> np.ndarray:
    """Probability of the label minus that of the best other class."""
    others_NC = probability_NC.copy()
    others_NC[np.arange(len(label_N)), label_N] = -np.inf
    return self_confidence(label_N, probability_NC) - others_NC.max(axis=1)


def flagged(label_N: np.ndarray, probability_NC: np.ndarray) -> dict[str, np.ndarray]:
    """Which labels each method takes for wrong."""
    class_N = confident_classes(label_N, probability_NC)
    found = {
        "mast": likely_errors(label_N, probability_NC),
        "off the diagonal": (class_N != label_N) & (class_N != NO_CLASS),
    }
    if find_spec("cleanlab") is not None:
        from cleanlab.filter import find_label_issues

        for name in FILTERS:
            found[f"cleanlab: {name}"] = find_label_issues(
                label_N, probability_NC, filter_by=name, n_jobs=1
            )
    return found


def scored(label_N: np.ndarray, wrong_N: np.ndarray, probability_NC: np.ndarray) -> Found:
    """The percentages of flagged labels and of labels ranked first that are wrong."""
    found = flagged(label_N, probability_NC)
    suspect_S = np.flatnonzero(found["mast"])
    first = {}
    for name, rank in (("self-confidence", self_confidence), ("margin", margin)):
        order_S = rank(label_N, probability_NC)[suspect_S].argsort(kind="stable")
        first[name] = 100 * float(wrong_N[suspect_S[order_S[: wrong_N.sum()]]].mean())
    return {
        "agreed": 100 * float((probability_NC.argmax(axis=1) == label_N).mean()),
        "wrong": int(wrong_N.sum()),
        "flagged": {
            name: {
                "images": int(flagged_N.sum()),
                "precision": 100 * float(wrong_N[flagged_N].mean()),
                "recall": 100 * float(flagged_N[wrong_N].mean()),
            }
            for name, flagged_N in found.items()
        },
        "first": first,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("images", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--drawn", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3, help="of folds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if find_spec("cleanlab") is None:
        print("cleanlab is not installed: nothing to compare with (pip install cleanlab)")
    drawn_N = np.random.default_rng(0).permutation(50_000)[: options.drawn]
    people = human_labels(options.labels)
    files = in_order(options.images, options.labels)["train"]
    features_ND = torch.from_numpy(mast.Encoder().encode([files[at] for at in drawn_N]))
    true_N = people["clean_label"][drawn_N]
    rows = []
    for name, seed in itertools.product(LABELS, range(options.seeds)):
        label_N = people[name][drawn_N]
        probability_NC = out_of_fold(features_ND, label_N, 10, seed)
        row = {"labels": name, "seed": seed, **scored(label_N, label_N != true_N, probability_NC)}
        print(row, flush=True)
        rows.append(row)
    versions = {"cleanlab": version("cleanlab") if find_spec("cleanlab") is not None else None}
    result = {
        "images": len(drawn_N), "encoder": DEFAULT, "rows": rows,
        "provenance": provenance() | versions,
    }  # fmt: skip
    write_json(RESULTS / "label_errors.json", result)


if __name__ == "__main__":
    main()
