"""Do the detectors learn? Mask R-CNN and Faster R-CNN on small photos of COCO, on two CPU cores.

    python experiments/detection.py --sets SETS [--only overfit losses truth]

SETS holds coco128: 96 photos of COCO in train2017 and 32 in val2017. All encoders are narrow
ResNet-18s with random weights, images are 160 pixels high or wide, nothing is mirrored.

- overfit: Faster R-CNN on the first 20 photos of one to five objects without a crowd, scored on the
  same 20; a detector that cannot learn these by heart is broken somewhere.
- losses: both architectures on all photos that have objects; every loss at the start and at the
  end, and the score on val2017, which is expected to be next to nothing.
- truth: the score of the annotations themselves, which must be 100.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from mast.core.checkpoint import write_json, write_text
from mast.core.launch import make_fabric
from mast.core.loop import Done
from mast.core.run import plain, provenance
from mast.data import Annotated, open_source
from mast.measure.frozen import FrozenEncoder
from mast.measure.sets import ObjectData
from mast.models import Encoder, EncoderConfig
from mast.protocols import Detection, Segmentation
from mast.protocols.detection.average_precision import AveragePrecision, annotated_target
from mast.protocols.detection.protocol import ObjectProtocol

RESULT = Path(__file__).parent / "results" / "detection.json"
DOCUMENT = Path(__file__).parent.parent / "docs" / "detection.md"
ENCODER = EncoderConfig("timm:resnet18", {"channels": [32, 64, 128, 256]})
SMALL: dict[str, Any] = {
    "batch_size": 4, "min_sizes": (160,), "test_min_size": 160, "max_size": 256, "flip": False,
    "regions": 64, "pyramid": 128, "anchors": (16, 32, 64, 128, 256), "rpn_weight": 1.0,
    "clip": 5.0,
}  # fmt: skip
OVERFIT = Detection(
    architecture="fpn", optimizer="adamw", lr=0.001, iterations=700, warmup=50,
    milestones=(0.7, 0.9), **SMALL,
)  # fmt: skip
SHORT: dict[str, Any] = {"optimizer": "sgd", "lr": 0.02, "iterations": 150, "warmup": 20}
LOSSES: dict[str, ObjectProtocol] = {
    "Mask R-CNN FPN": Segmentation(**SHORT, **SMALL),
    "Faster R-CNN C4": Detection(**SHORT, **{**SMALL, "regions": 32}),
}
AVERAGED = 20  # steps, at either end


def twenty(root: Path, folder: Path) -> Annotated:
    """The first 20 photos of one to five objects without a crowd."""
    document = json.loads((root / "annotations" / "instances_train2017.json").read_text())
    objects: dict[int, list[dict[str, Any]]] = {row["id"]: [] for row in document["images"]}
    for row in document["annotations"]:
        objects[row["image_id"]].append(row)
    fitting = [
        row
        for row in sorted(document["images"], key=lambda row: row["id"])
        if 1 <= len(objects[row["id"]]) <= 5
        and not any(found["iscrowd"] for found in objects[row["id"]])
    ]
    document["images"] = fitting[:20]
    document["annotations"] = [found for row in fitting[:20] for found in objects[row["id"]]]
    file = folder / "twenty.json"
    file.write_text(json.dumps(document))
    return opened(f"coco:{file}@{root / 'train2017'}")


def opened(spec: str) -> Annotated:
    """A set that is known to have objects."""
    source = open_source(spec)
    assert isinstance(source, Annotated)
    return source


def trained(protocol: ObjectProtocol, data: ObjectData) -> dict[str, Any]:
    """The losses at both ends of a training, its minutes, and the score on the test set."""
    torch.manual_seed(0)
    encoder = FrozenEncoder(Encoder(ENCODER, 160).eval())
    steps: list[dict[str, float]] = []
    started = time.monotonic()

    def keep(done: Done) -> None:
        assert done.metrics is not None
        steps.append(done.metrics)

    detector = protocol.train(encoder, data, keep)
    minutes = (time.monotonic() - started) / 60
    measures = {name: float(value) for name, value in protocol.measure(encoder, detector, data)}
    return {
        "settings": plain(protocol),
        "minutes": minutes,
        "first": {name: mean(steps[:AVERAGED], name) for name in steps[0]},
        "last": {name: mean(steps[-AVERAGED:], name) for name in steps[0]},
        "images": {part: len(source) for part, source in data.named.items()},
        "measures": measures,
    }


def mean(steps: list[dict[str, float]], name: str) -> float:
    """Mean of a loss over steps."""
    return sum(step[name] for step in steps) / len(steps)


def truth(source: Annotated) -> dict[str, float]:
    """The score of what is annotated, taken for what was found."""
    precision = AveragePrecision(source, masks=True)
    for index in range(len(source)):
        target = annotated_target(source, index, masks=True)
        alone_N = target["iscrowd"] == 0
        found = {key: target[key][alone_N] for key in ("boxes", "labels", "masks")}
        found["masks"] = found["masks"].bool()
        precision.add(index, {**found, "scores": torch.ones(int(alone_N.sum()))})
    return {name: float(value) for name, value in precision.measures(make_fabric("cpu"))}


def tables(result: dict[str, Any]) -> str:
    """The result in Markdown."""
    fitted, networks = result["overfit"], result["losses"]["networks"]
    terms = next(iter(networks.values()))["first"]
    lines = [
        f"Learned by heart, {fitted['images']['train']} photos with {fitted['objects']} objects in "
        f"{fitted['settings']['iterations']} steps and {fitted['minutes']:.0f} minutes, boxes: "
        + ", ".join(
            f"{name} {fitted['measures'][f'objects/{key}']:.1f}"
            for name, key in (("AP", "ap"), ("AP50", "ap50"), ("AP75", "ap75"))
        )
        + ".",
        "",
        "Mean of each loss over the first and the last "
        f"{AVERAGED} steps on {next(iter(networks.values()))['images']['train']} photos:",
        "",
        "| network | steps | minutes | " + " | ".join(terms) + " |",
        "|---" * (len(terms) + 3) + "|",
    ]
    for network, row in networks.items():
        cells = [
            f"{row['first'][name]:.2f} → {row['last'][name]:.2f}" if name in row["first"] else "–"
            for name in terms
        ]
        about = f"{row['settings']['iterations']} | {row['minutes']:.1f}"
        lines.append(f"| {network} | {about} | {' | '.join(cells)} |")
    shown = "; ".join(
        f"{split}: boxes {row['objects/ap']:.1f}, masks {row['masks/ap']:.1f}"
        for split, row in result["truth"]["sets"].items()
    )
    return "\n".join([*lines, "", f"AP of the annotations themselves: {shown}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=["overfit", "losses", "truth"])
    options = parser.parse_args()
    root = options.sets / "coco128"
    origin = provenance()
    result = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    train, test = (opened(f"coco:{root}@{split}") for split in ("train2017", "val2017"))
    for part in options.only:
        if part == "overfit":
            with tempfile.TemporaryDirectory() as folder:
                few = twenty(root, Path(folder))
            result[part] = trained(OVERFIT, ObjectData(few, few, 160))
            result[part]["objects"] = sum(len(few.objects(index)) for index in range(len(few)))
        elif part == "losses":
            data = ObjectData(train, test, 160)
            result[part] = {
                "networks": {name: trained(each, data) for name, each in LOSSES.items()}
            }
        else:
            result[part] = {"sets": {"train2017": truth(train), "val2017": truth(test)}}
        result[part]["provenance"] = origin
        write_json(RESULT, result)
    if {"overfit", "losses", "truth"} <= result.keys():
        before, rest = DOCUMENT.read_text().split("<!-- detection -->")
        after = rest.split("<!-- /detection -->")[1]
        shown = f"<!-- detection -->\n{tables(result)}\n<!-- /detection -->"
        write_text(DOCUMENT, before + shown + after)


if __name__ == "__main__":
    main()
