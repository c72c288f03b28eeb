"""A tiny labelled set, an encoder that sees it, and settings with which protocols are quick."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.core.bench import Bench
from mast.data import CanvasSet
from mast.data.pixels import Pixels
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.protocols.run import EvaluationSettings
from mast.evaluation.result import Result, TargetResult

SIDE = 16
COLORS = np.stack(np.meshgrid([60, 190], [60, 190], [60, 125, 190]), axis=-1).reshape(12, 3)


def tiny_set(per_class: int, classes: int = 3, seed: int = 0, noise: float = 60.0) -> CanvasSet:
    """Noisy one-colored images: "class" is the color, "bright" whether white was added; "shows"
    has both as labels of which an image may have several, one in ten of them unknown.
    """
    draw = np.random.default_rng(seed)
    label_N = draw.permutation(np.repeat(np.arange(classes), per_class))
    bright_N = np.arange(len(label_N)) % 2
    images = (COLORS[label_N] + 40 * bright_N[:, None])[:, None, None] + noise * (
        draw.standard_normal((len(label_N), SIDE, SIDE, 3))
        + draw.standard_normal((len(label_N), 1, 1, 3)) / 4
    )
    shows_NL = np.column_stack([label_N[:, None] == np.arange(classes), bright_N]).astype(np.int8)
    shows_NL[draw.random(shows_NL.shape) < 0.1] = -1
    return CanvasSet(
        name=f"tiny@{seed}",
        pixels=Pixels.of(images.clip(0, 255).astype(np.uint8)),
        aspect_N=np.full(len(label_N), 1.25, np.float32),
        targets={"class": label_N.astype(np.int64), "bright": bright_N.astype(np.int64)},
        classes={
            "class": tuple(f"color{i}" for i in range(classes)),
            "bright": ("no", "yes"),
            "shows": (*(f"color{i}" for i in range(classes)), "white"),
        },
        identifiers=tuple(f"{i}.png" for i in range(len(label_N))),
        fingerprint=f"{seed:08x}",
        multilabels={"shows": shows_NL},
    )


DETECTOR: dict[str, Any] = {
    "iterations": 4, "batch_size": 2, "lr": 0.01, "warmup": 0, "min_sizes": [32, 40],
    "test_min_size": 40, "max_size": 64, "regions": 8, "pyramid": 8, "anchors": [8, 12, 16, 24, 32],
}  # fmt: skip

# Of every protocol, what takes a second or less.
PROBE: dict[str, Any] = {"penalties": [1e5, 10, 1, 0.1, 1e-2, 1e-3, 1e-4]}
QUICK = EvaluationSettings(
    protocols={
        "linear": PROBE,
        "ensemble": PROBE,
        "embedding": PROBE,
        "rotation": PROBE,
        "retained": {**PROBE, "operators": ["horizontal_flip", "invert"]},
        "robust": {**PROBE, "operators": ["color_jitter", "invert", "rotate"]},
        "fewshot": {**PROBE, "repeats": 2, "episodes": 5, "shots": [5]},
        "linear_sgd": {"epochs": 10, "batch_size": 16, "learning_rates": [0.0001, 3.0]},
        "retrieval": {"k": 3},
        "svm": {"costs": [0.1, 10]},
        "semi": {"shares": [0.2], "encoder_lrs": [0.01], "head_lrs": [3.0], "batch_size": 8},
        "finetune": {"changes": {"epochs": 6, "batch_size": 16}, "encoder_lrs": [0.0001, 0.3]},
        "detection": DETECTOR,
        "segmentation": DETECTOR,
    }
)


def measured(
    folder: Path, hits: Tensor, protocol: str = "linear", images: str = "flowers17", **changes: Any
) -> Result:
    """A result in a folder, by what each image contributed to its top-1 accuracy.

    The images have the name of their set.
    """
    target = TargetResult({"top1": 100 * float(hits.double().mean())}, each={"top1": hits.float()})
    fields: dict[str, Any] = {
        "set_name": f"{images}/test",
        "targets": {"class": target},
        "settings": {
            "extraction": {"size": 32, "device": "cpu"},
            "protocol": {"seed": 0, "resamples": 50},
        },
        "fingerprints": {"test": "a"},
        "sizes": {"train": 800, "test": len(hits)},
    }
    result = Result(protocol, images=images, **(fields | changes))
    result.write(folder)
    return result


class Colors(nn.Module):
    """Mean colors of the four quarters, normalised by statistics that must stay frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(12, momentum=0.5)
        self.calls = 0

    def forward(self, images_BCHW: Tensor) -> Tensor:
        self.calls += 1
        return self.norm(F.adaptive_avg_pool2d(images_BCHW, 2).flatten(1))


class Subspaces(nn.Module):
    """What a method puts beside an encoder: here the same colors, one half a subspace."""

    operators = ("upper", "lower")

    def __init__(self, encoder: nn.Module, side_by_side: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.side_by_side = side_by_side

    def masks(self) -> Tensor:
        return torch.eye(2).repeat_interleave(2, dim=0).repeat(3, 1)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        embedding_BD = self.encoder(images_BCHW)
        if not self.side_by_side:
            return embedding_BD
        return torch.cat([embedding_BD * mask_D for mask_D in self.masks().unbind(1)], dim=1)


def complete(encoder: nn.Module) -> FrozenEncoder:
    """An encoder with everything a protocol may ask for."""

    def representation(name: str) -> FrozenEncoder:
        return FrozenEncoder(Subspaces(encoder, name == "ensemble"))

    return FrozenEncoder(encoder, representations=representation)


def working_in(folder: Path, encoder: nn.Module) -> FrozenEncoder:
    """An encoder whose unfinished trainings are kept in a folder."""
    return FrozenEncoder(encoder, bench=Bench(workspace=folder))
