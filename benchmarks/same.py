"""Does a revision compute what another one did? Five runs, every protocol, the analyses and a page.

    python benchmarks/same.py FOLDER [--against OTHER/digests.json]

Everything that a tiny MAST-C, VICReg, staged VICReg, MAST and MAST-C over a distance compute on a
CPU in half a minute, as digests in FOLDER/digests.json: weights, logs, what every protocol measured
of every image, the arrays and captions of the analyses, the page. A change that should change
nothing gives the same file, bit for bit, on the same machine; with `--against`, what differs is
printed, and the exit code is 1.
"""

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

from mast.commands.embed import embed
from mast.commands.evaluate import evaluate
from mast.commands.outliers import outliers
from mast.commands.pretrain import pretrain
from mast.core.run import RunFolder
from mast.evaluation.protocols import EVALUATORS
from mast.evaluation.result import Result
from mast.recipes import configure

sys.path.append(str(Path(__file__).parents[1]))  # of `paper`

ENCODER = {
    "name": "timm:resnet18",
    "options": {
        "layers": [1, 1, 1, 1],
        "channels": [8, 16, 16, 32],
        "stem_type": "deep",
        "stem_width": 8,
    },
}
SIZES = {"hidden": 32, "dim": 24}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "mast_c": ("mast_c5_small", {"objective": {"projector": SIZES}}),
    "vicreg": ("vicreg5_small", {"objective": {"projector": SIZES}}),
    "staged": ("vicreg5_staged_small", {"objective": {"projector": SIZES}}),
    "mast": (
        "mast5_small",
        {"objective": {"projector": {**SIZES, "pool": "before"}}, "schedule": {"staged": True}},
    ),
    "k15": (
        "mast_c5_distance_small",
        {"objective": {"projector": SIZES}, "views": "mast15", "accumulate": 2},
    ),
}
OBJECTS = {
    "anchors": [8, 12, 16, 24, 32], "iterations": 2, "batch_size": 2, "min_sizes": [64],
    "test_min_size": 64, "max_size": 96, "pyramid": 16, "regions": 16,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "linear_sgd": {"epochs": 2, "learning_rates": [0.02, 0.1], "batch_size": 16},
    "fewshot": {"shots": [2], "repeats": 2, "episodes": 3, "support": [1], "queries": 3},
    "robust": {"magnitudes": [0.5, 1.0]},
    "semi": {
        "epochs": 2, "batch_size": 16, "shares": [0.2], "encoder_lrs": [0.03], "head_lrs": [0.1],
    },
    "finetune": {
        "changes": {
            "epochs": 1, "batch_size": 16, "views": "mast15", "compose": 2, "mixup": 0.1,
            "cutmix": 1.0,
        },
        "encoder_lrs": [0.01, 0.02],
    },
    "detection": {"architecture": "fpn", **OBJECTS},
    "segmentation": OBJECTS,
}  # fmt: skip
ON_OBJECTS = ("svm", "detection", "segmentation")
OF_THE_CLOCK = ("seconds", "images_per_second")


def digest(content: bytes) -> str:
    """Sixteen digits of a SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def of_array(values: Any) -> Any:
    """A digest of an array's bytes; texts as they are."""
    array = np.ascontiguousarray(values)
    return array.tolist() if array.dtype.kind == "U" else digest(array.tobytes())


# ---------------------------------------------------------------------------------------- images


def write_photos(folder: Path, count: int, classes: int = 3, side: int = 40) -> None:
    """Noise around a color of its class, a class a subfolder."""
    random = np.random.default_rng(count)
    for index in range(count):
        label = index % classes
        pixels = random.integers(0, 120, (side, side + 8, 3))
        pixels[..., label % 3] += 120
        place = folder / f"class{label}" / f"{index:03d}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(place)


def write_squares(folder: Path, split: str, images: int, seed: int) -> None:
    """Red and blue rectangles on noise, annotated as COCO does."""
    random = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    objects: list[dict[str, Any]] = []
    (folder / split).mkdir(parents=True)
    for number in range(images):
        width, height = (int(side) for side in random.integers(40, 60, 2))
        pixels = random.integers(60, 120, (height, width, 3), np.uint8)
        rows.append({"id": number, "file_name": f"{number}.png", "width": width, "height": height})
        for category in (1, 2)[: 1 + number % 2]:
            (x, y), (w, h) = (random.integers(*ends, 2).tolist() for ends in ((0, 20), (10, 20)))
            pixels[y : y + h, x : x + w] = (220, 20, 20) if category == 1 else (20, 20, 220)
            objects.append(
                {
                    "id": len(objects) + 1, "image_id": number, "category_id": category,
                    "bbox": [x, y, w, h], "area": w * h, "iscrowd": 0,
                    "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]],
                }
            )  # fmt: skip
        Image.fromarray(pixels).save(folder / split / f"{number}.png")
    document = {
        "images": rows,
        "annotations": objects,
        "categories": [{"id": 1, "name": "red"}, {"id": 2, "name": "blue"}],
    }
    file = folder / "annotations" / f"instances_{split}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(document))


# ------------------------------------------------------------------------------------- the digests


def trained() -> Iterator[tuple[str, Any]]:
    """Weights and logs of the five runs."""
    for name, (recipe, changes) in RUNS.items():
        config = configure(
            recipe, "photos/train", out=f"runs/{name}", size=32, encoder=ENCODER, epochs=3,
            batch_size=16, device="cpu", **changes,
        )  # fmt: skip
        run = pretrain(config)
        state = torch.load(run.last, weights_only=True)["module"]
        yield f"{name}: weights", {key: of_array(state[key]) for key in sorted(state)}
        yield f"{name}: encoder", {k: of_array(v) for k, v in load_file(run.encoder).items()}
        yield (
            f"{name}: log",
            [
                {key: value for key, value in line.items() if key not in OF_THE_CLOCK}
                for line in run.read_metrics()
            ],
        )


def measured() -> Iterator[tuple[str, Any]]:
    """What every protocol says of every image."""
    from paper import register

    register()
    plain = [name for name in EVALUATORS if name not in ON_OBJECTS]
    calls: list[tuple[str, str, list[str], bool]] = [
        ("mast", "photos", plain, False),
        ("mast", "photos", ["linear"], True),
        ("vicreg", "photos", ["knn", "linear", "embedding", "retained"], False),
        *(("mast_c", "coco:squares", [name], False) for name in ON_OBJECTS),
    ]
    for name, data, protocols, untrained in calls:
        settings = {name: SETTINGS[name] for name in protocols if name in SETTINGS}
        for result in evaluate(
            f"runs/{name}", data, protocols, settings, device="cpu", untrained=untrained
        ):
            start = " before training" if untrained else ""
            yield f"{name}{start}: {result.protocol}", of_result(result)


def of_result(result: Result) -> dict[str, Any]:
    """Values as they are, what each image contributed as digests."""
    return {
        name: {
            "values": target.values,
            "chosen": target.chosen,
            "arrays": {k: of_array(v) for k, v in {**target.each, **target.draws}.items()},
        }
        for name, target in result.targets.items()
    }


def explained() -> Iterator[tuple[str, Any]]:
    """Captions and arrays of the analyses, the page, and what the other commands write."""
    from paper import register
    from paper.analyze import analyze
    from paper.report import report
    from paper.study import study

    register()
    for name, beside in (("mast", "vicreg"), ("vicreg", "mast_c")):
        insights = analyze(f"runs/{name}", "photos", beside=f"runs/{beside}", images=20)
        yield f"{name}: captions", {insight.name: insight.text for insight in insights}
        for file in sorted(RunFolder(f"runs/{name}").analysis.glob("*.npz")):
            with np.load(file) as arrays:
                yield (
                    f"{name}: {file.stem}",
                    {key: of_array(arrays[key]) for key in arrays if key not in OF_THE_CLOCK},
                )
    study("leave_one_out", "runs/mast_c", "photos", epochs=1, device="cpu")
    for folder in sorted(Path("runs/mast_c/studies").glob("*-seed*")):
        weights = load_file(folder / "encoder.safetensors")
        yield f"study: {folder.name}", {key: of_array(value) for key, value in weights.items()}
    ranked = outliers("photos/test", "runs/mast", known="photos/train", labels=False)
    yield "ranked by uncertainty", dict(ranked.columns)
    with np.load(embed("photos/test", "runs/mast_c")) as arrays:
        yield "embedded", of_array(arrays["features"])
    page = report("runs/mast", beside="runs/vicreg").read_text()
    yield "page", digest(re.sub("<dl>.*?</dl>", "", page, flags=re.S).encode())  # without facts


def differences(first: Any, second: Any, place: str = "") -> Iterator[str]:
    """Where two trees differ."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted(first.keys() | second.keys()):
            yield from differences(first.get(key), second.get(key), f"{place} / {key}")
    elif first != second:
        yield f"{place[3:]}: {str(first)[:60]} | {str(second)[:60]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("--against", type=Path, help="digests.json of another revision")
    options = parser.parse_args()
    before = json.loads(options.against.read_text()) if options.against else None
    options.folder.mkdir(parents=True)
    os.chdir(options.folder)
    os.environ["XDG_CACHE_HOME"] = str(Path("cache").absolute())
    torch.set_num_threads(1)
    for part, count in (("train", 48), ("val", 24), ("test", 27)):
        write_photos(Path("photos") / part, count)
    for seed, (split, count) in enumerate((("train", 7), ("test", 4))):
        write_squares(Path("squares"), split, count, seed)
    digests = dict([*trained(), *measured(), *explained()])
    text = json.dumps(digests, indent=1, sort_keys=True)
    Path("digests.json").write_text(text)
    if before is not None:
        different = list(differences(before, json.loads(text)))
        print("\n".join(different) or "equal")
        sys.exit(bool(different))


if __name__ == "__main__":
    main()
