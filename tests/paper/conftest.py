"""The sets of studies, of a few images each."""

from pathlib import Path

import pytest
import tiny
from evaluation_fixtures import write_squares


@pytest.fixture(scope="session")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sets that the experiments need, of a few images."""
    root = tmp_path_factory.mktemp("sets")
    for name, count in (
        ("cifar10/train", 60), ("cifar10/test", 24), ("flowers17/train", 36),
        ("flowers17/val", 12), ("flowers17/test", 12), ("dtd10/train", 36), ("dtd10/test", 12),
        ("photos", 110),
    ):  # fmt: skip
        tiny.write_images(root / name, count)
    for part, images in (("train2017", 3), ("val2017", 1)):
        write_squares(root / "coco128", part, images, seed=images)
    return root
