"""The sets of studies, of a few images each."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from PIL import Image


def write_squares(root: Path, part: str, images: int) -> None:
    """Photos of a red and perhaps a blue square, annotated as COCO has it."""
    draw = np.random.default_rng(images)
    document: dict[str, Any] = {
        "images": [],
        "annotations": [],
        "categories": [{"id": 1, "name": "red"}, {"id": 2, "name": "blue"}],
    }
    (root / part).mkdir(parents=True)
    for at in range(images):
        pixels = draw.integers(60, 120, (48, 56, 3), np.uint8)
        name = f"{at}.png"
        document["images"].append({"id": at, "file_name": name, "width": 56, "height": 48})
        for category in (1, 2)[: 1 + at % 2]:
            (x, y), side = (int(value) for value in draw.integers(0, 24, 2)), 18
            pixels[y : y + side, x : x + side] = (220, 20, 20) if category == 1 else (20, 20, 220)
            corners = [x, y, x + side, y, x + side, y + side, x, y + side]
            row = {"image_id": at, "category_id": category, "bbox": [x, y, side, side],
                   "segmentation": [corners], "iscrowd": 0, "area": side * side}  # fmt: skip
            document["annotations"].append({"id": len(document["annotations"]) + 1, **row})
        Image.fromarray(pixels).save(root / part / name)
    (root / "annotations").mkdir(exist_ok=True)
    (root / "annotations" / f"instances_{part}.json").write_text(json.dumps(document))


@pytest.fixture(scope="session")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sets that the experiments need, of a few images."""
    write = tiny.write_images
    root = tmp_path_factory.mktemp("sets")
    for name, count in (
        ("cifar10/train", 60), ("cifar10/test", 24), ("flowers17/train", 36),
        ("flowers17/val", 12), ("flowers17/test", 12), ("dtd10/train", 36), ("dtd10/test", 12),
        ("photos", 90),
    ):  # fmt: skip
        write(root / name, count)
    for part, images in (("train2017", 5), ("val2017", 3)):
        write_squares(root / "coco128", part, images)
    return root
