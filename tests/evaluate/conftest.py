"""A tiny labelled set and an encoder that sees it, shared by the tests of the protocols."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.data import CanvasSet
from mast.evaluate import EvaluationData

SIDE = 16
COLORS = np.stack(np.meshgrid([60, 190], [60, 190], [60, 125, 190]), axis=-1).reshape(12, 3)


def tiny_set(per_class: int, classes: int = 3, seed: int = 0, noise: float = 60.0) -> CanvasSet:
    """Noisy one-coloured images: "class" is the colour, "bright" whether white was added."""
    draw = np.random.default_rng(seed)
    label_N = draw.permutation(np.repeat(np.arange(classes), per_class))
    bright_N = np.arange(len(label_N)) % 2
    images = (COLORS[label_N] + 40 * bright_N[:, None])[:, None, None] + noise * (
        draw.standard_normal((len(label_N), SIDE, SIDE, 3))
        + draw.standard_normal((len(label_N), 1, 1, 3)) / 4
    )
    return CanvasSet(
        name=f"tiny@{seed}",
        images=images.clip(0, 255).astype(np.uint8),
        aspect_N=np.full(len(label_N), 1.25, np.float32),
        targets={"class": label_N.astype(np.int64), "bright": bright_N.astype(np.int64)},
        classes={
            "class": tuple(f"colour{i}" for i in range(classes)),
            "bright": ("no", "yes"),
        },
        identifiers=tuple(f"{i}.png" for i in range(len(label_N))),
        fingerprint=f"{seed:08x}",
    )


class Colors(nn.Module):
    """Mean colours of the four quarters, normalised by statistics that must stay frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(12, momentum=0.5)
        self.calls = 0

    def forward(self, images_BCHW: Tensor) -> Tensor:
        self.calls += 1
        return self.norm(F.adaptive_avg_pool2d(images_BCHW, 2).flatten(1))


@pytest.fixture
def encoder() -> Colors:
    return Colors()


@pytest.fixture
def make_set() -> Callable[..., CanvasSet]:
    return tiny_set


@pytest.fixture
def data() -> EvaluationData:
    return EvaluationData(tiny_set(20, seed=0), tiny_set(6, seed=1), tiny_set(8, seed=2), SIDE)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
