"""Do the detectors learn? Mask R-CNN and Faster R-CNN on small photos of COCO."""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, final

import torch

from mast.analyses import Grid
from mast.core.compute import Compute
from mast.core.errors import UserError
from mast.core.launch import find_device, make_fabric
from mast.core.loop import StepResult
from mast.core.run import plain
from mast.core.seeds import forked
from mast.encoders.frozen import FrozenEncoder
from mast.models import Encoder, EncoderConfig
from paper.annotated import Annotated, open_annotated
from paper.experiment import Experiment, Measured, Workplace
from paper.protocols import Detection, Segmentation
from paper.protocols.detection.average_precision import AveragePrecision, annotated_target
from paper.protocols.detection.data import ObjectData
from paper.protocols.detection.protocol import ObjectProtocol
from paper.studies.engine import StudyRun

TRAIN, TEST = "train2017", "val2017"
AVERAGED = 20  # steps, at either end
SMALL: dict[str, Any] = {
    "batch_size": 4, "min_sizes": (160,), "test_min_size": 160, "max_size": 256, "flip": False,
    "regions": 64, "pyramid": 128, "anchors": (16, 32, 64, 128, 256), "rpn_weight": 1.0,
    "clip": 5.0,
}  # fmt: skip
SHORT: dict[str, Any] = {"optimizer": "sgd", "lr": 0.02, "iterations": 150, "warmup": 20}
OVERFIT = Detection(
    architecture="fpn", optimizer="adamw", lr=0.001, iterations=700, warmup=50,
    milestones=(0.7, 0.9), **SMALL,
)  # fmt: skip
NETWORKS: dict[str, ObjectProtocol] = {
    "Mask R-CNN FPN": Segmentation(**SHORT, **SMALL),
    "Faster R-CNN C4": Detection(**SHORT, **{**SMALL, "regions": 32}),
}


@final
@dataclass(frozen=True)
class Detectors(Experiment):
    """Three checks with a narrow ResNet-18 of random weights; nothing is mirrored.

    - overfit: Faster R-CNN on the first photos of one to five objects without a crowd, scored on
      the same; a detector that cannot learn these by heart is broken somewhere.
    - losses: both architectures on all photos that have objects; every loss at the start and at the
      end, and the score on other photos, which is expected to be next to nothing.
    - truth: the score of the annotations themselves, which must be 100.

    It needs `coco128`, with 96 photos of COCO in train2017 and 32 in val2017.
    """

    results: ClassVar[str] = "detection"

    encoder: EncoderConfig = field(
        default_factory=lambda: EncoderConfig("timm:resnet18", {"channels": [32, 64, 128, 256]})
    )
    size: int = 160
    few: int = 20
    overfit: ObjectProtocol = OVERFIT
    networks: Mapping[str, ObjectProtocol] = field(default_factory=lambda: NETWORKS)

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        return [StudyRun(name, {}, trained=False) for name in ("overfit", "losses", "truth")]

    def prepare(self, workplace: Workplace) -> None:
        for part in (TRAIN, TEST):
            self._open(workplace, part)

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        train, test = (self._open(workplace, part) for part in (TRAIN, TEST))
        if run.name == "truth":
            return {"sets": {TRAIN: _truth(train), TEST: _truth(test)}}
        if run.name == "losses":
            data = ObjectData(train, test, self.size)
            networks = {
                name: self._train(protocol, data, workplace)
                for name, protocol in self.networks.items()
            }
            return {"networks": networks}
        with tempfile.TemporaryDirectory() as folder:
            few = _few(workplace.sets / "coco128", self.few, Path(folder))
            learned = self._train(self.overfit, ObjectData(few, few, self.size), workplace)
            return {**learned, "objects": sum(len(few.objects(at)) for at in range(len(few)))}

    def conclude(self, measured: Mapping[str, Measured], workplace: Workplace) -> Measured:
        """The three checks in one file."""
        return dict(measured)

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """The mean of each loss at either end, a row a network."""
        networks = measured["losses"]["networks"] if "losses" in measured else {}
        terms = [name for row in list(networks.values())[:1] for name in row["first"]]
        rows = tuple(
            (
                network,
                str(row["settings"]["iterations"]),
                f"{row['minutes']:.1f}",
                *(
                    f"{row['first'][name]:.2f} → {row['last'][name]:.2f}"
                    if name in row["first"] else "–"
                    for name in terms
                ),
            )
            for network, row in networks.items()
        )  # fmt: skip
        return Grid(("network", "steps", "minutes", *terms), rows)

    def _train(
        self, protocol: ObjectProtocol, data: ObjectData, workplace: Workplace
    ) -> dict[str, Any]:
        """The losses at both ends of a training, its minutes, and the score on the test set."""
        with forked():
            torch.manual_seed(0)
            module = Encoder(self.encoder, self.size).eval()
        encoder = FrozenEncoder(module, Compute(find_device(workplace.device)))
        steps: list[dict[str, float]] = []
        started = time.monotonic()

        def record_losses(step: StepResult) -> None:
            assert step.metrics is not None
            steps.append(step.metrics)

        detector = protocol.train(encoder, data, record_losses)
        minutes = (time.monotonic() - started) / 60
        measures = {name: float(value) for name, value in protocol.measure(encoder, detector, data)}
        return {
            "settings": plain(protocol),
            "minutes": minutes,
            "first": {name: _mean(steps[:AVERAGED], name) for name in steps[0]},
            "last": {name: _mean(steps[-AVERAGED:], name) for name in steps[0]},
            "images": {part: len(source) for part, source in data.named.items()},
            "measures": measures,
        }

    def _open(self, workplace: Workplace, part: str) -> Annotated:
        root = workplace.sets / "coco128"
        if not root.is_dir():
            raise UserError(f"{workplace.sets} has no coco128; give a folder of sets that has it")
        return _annotated(f"coco:{root}@{part}")


def _annotated(spec: str) -> Annotated:
    return open_annotated(spec, Path(), False)


def _few(root: Path, count: int, folder: Path) -> Annotated:
    """The first photos of one to five objects without a crowd."""
    document = json.loads((root / "annotations" / f"instances_{TRAIN}.json").read_text())
    objects: dict[int, list[dict[str, Any]]] = {row["id"]: [] for row in document["images"]}
    for row in document["annotations"]:
        objects[row["image_id"]].append(row)
    fitting = [
        row
        for row in sorted(document["images"], key=lambda row: row["id"])
        if 1 <= len(objects[row["id"]]) <= 5
        and not any(each["iscrowd"] for each in objects[row["id"]])
    ]
    document["images"] = fitting[:count]
    document["annotations"] = [each for row in fitting[:count] for each in objects[row["id"]]]
    file = folder / "few.json"
    file.write_text(json.dumps(document))
    return _annotated(f"coco:{file}@{root / TRAIN}")


def _mean(steps: Sequence[Mapping[str, float]], name: str) -> float:
    """Mean of a loss over steps."""
    return sum(step[name] for step in steps) / len(steps)


def _truth(source: Annotated) -> dict[str, float]:
    """The score of what is annotated, taken for what was detected."""
    precision = AveragePrecision(source, masks=True)
    for index in range(len(source)):
        target = annotated_target(source, index, masks=True)
        alone_N = target["iscrowd"] == 0
        detected = {key: target[key][alone_N] for key in ("boxes", "labels", "masks")}
        detected["masks"] = detected["masks"].bool()
        precision.add(index, {**detected, "scores": torch.ones(int(alone_N.sum()))})
    return {name: float(value) for name, value in precision.measures(make_fabric("cpu"))}
