"""A tiny labelled set and an encoder that sees it, shared by the tests of the protocols."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from layouts import box
from PIL import Image
from tiny import ENCODER
from tiny_evaluation import SIDE, Colors, tiny_set

from mast.data import open_source
from mast.evaluation.labelled_sets import EvaluationData
from mast.models import Encoder
from paper import annotated
from paper.annotated import Annotated
from paper.protocols import register
from paper.protocols.detection.data import ObjectData

register()
annotated.register()


@pytest.fixture
def encoder() -> Colors:
    return Colors()


@pytest.fixture
def data() -> EvaluationData:
    return EvaluationData(tiny_set(20, seed=0), tiny_set(6, seed=1), tiny_set(8, seed=2), SIDE)


def write_squares(root: Path, split: str, images: int, seed: int) -> Annotated:
    """Red and blue rectangles on noise, with masks; then an image of a crowd, and an empty one."""
    draw = np.random.default_rng(seed)
    document: dict[str, list[dict[str, Any]]] = {
        "images": [],
        "annotations": [],
        "categories": [{"id": 1, "name": "red"}, {"id": 2, "name": "blue"}],
    }
    (root / split).mkdir(parents=True)
    for number in range(images + 2):
        width, height = (int(side) for side in draw.integers(40, 60, 2))
        pixels = draw.integers(60, 120, (height, width, 3), np.uint8)
        row = {"id": number, "file_name": f"{number}.png", "width": width, "height": height}
        document["images"].append(row)
        for category in (1, 2)[: 1 + number % 2] if number < images else (1,):
            x, y = (int(corner) for corner in draw.integers(0, 20, 2))
            w, h = (int(side) for side in draw.integers(10, 20, 2))
            pixels[y : y + h, x : x + w] = (220, 20, 20) if category == 1 else (20, 20, 220)
            polygon = [x, y, x + w, y, x + w, y + h, x, y + h]
            crowd = int(number == images)
            annotation = box(number, category, [x, y, w, h], segmentation=[polygon], iscrowd=crowd)
            if number <= images:
                document["annotations"].append({**annotation, "area": w * h})
        Image.fromarray(pixels).save(root / split / f"{number}.png")
    (root / "annotations").mkdir(exist_ok=True)
    (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(document))
    return open_source(f"coco:{root}@{split}")  # type: ignore[return-value]


@pytest.fixture(scope="session")
def object_data(tmp_path_factory: pytest.TempPathFactory) -> ObjectData:
    """Annotated images: seven to train on and five to test on, two of each without an object."""
    root = tmp_path_factory.mktemp("squares")
    train, test = (write_squares(root, *part) for part in (("train", 7, 0), ("test", 3, 1)))
    return ObjectData(train, test, 32)


@pytest.fixture
def resnet() -> Encoder:
    """The tiny encoder, in evaluation mode."""
    return Encoder(ENCODER, 32).eval()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
