"""The smallest encoder, and methods and runs with it, that tests train."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import mast
from mast.augment import Pipeline, Preset, Record, View, Views
from mast.core.canvases import Canvases
from mast.core.loop import Training
from mast.data import CanvasSet
from mast.methods import METHODS, Method, method_of
from mast.models import Encoder, EncoderConfig
from paper.methods import BASELINES

ENCODER = EncoderConfig(
    "timm:resnet18", {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]}, stem_stride=2
)
VIT = EncoderConfig(
    "vit_tiny_patch16_224", {"embed_dim": 24, "depth": 2, "num_heads": 3, "patch_size": 8}
)
SIZE, DIM = 32, 24
BATCH, CLASSES = 8, 3  # of `make_views`
OPERATORS = ("random_resized_crop", "horizontal_flip", "color_jitter")
# Of each method; those that tests add have none to make smaller.
PROJECTORS: dict[str, dict[str, Any]] = {
    name: {"hidden": 32, "dim": DIM} | ({"pool": "before"} if name == "mast" else {})
    for name, entry in (METHODS | BASELINES).items()
    if hasattr(entry.config(), "projector")
}


class Attack:
    """Unpickled carelessly, this creates a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


class Pooled(nn.Module):
    """A module of a user's own: the mean colors of sixteen parts of an image."""

    calls = 0

    def forward(self, images_BCHW: Tensor) -> Tensor:
        self.calls += 1
        return nn.functional.adaptive_avg_pool2d(images_BCHW, 4).flatten(1)


def build_method(
    name: str,
    projector: dict[str, Any],
    options: dict[str, Any],
    seed: int = 0,
    encoder: EncoderConfig | None = None,
) -> Method:
    """A method over three operators with an embedding of `DIM`, in training mode."""
    torch.manual_seed(seed)
    entry = METHODS[name]
    config: Any = entry.config(**options)
    if name in PROJECTORS:
        config.projector = replace(config.projector, **{**PROJECTORS[name], **projector})
    return entry.method(config, Encoder(encoder or encoder_of(name), SIZE), OPERATORS, seed).train()


def encoder_of(method: str) -> EncoderConfig:
    """The smallest that a method can train."""
    return VIT if method == "mae" else ENCODER


def scrambled(module: nn.Module) -> Any:
    """With every vector and statistic away from its start, so that each of them counts."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if "running_var" in name or (name.endswith("weight") and tensor.ndim == 1):
                tensor.uniform_(0.5, 1.5, generator=generator)
            elif tensor.ndim == 1:
                tensor.uniform_(-0.1, 0.1, generator=generator)
    return module.eval()


def records(applied: Sequence[Tensor], seed: int) -> tuple[Record, ...]:
    """What was drawn for views of which this was applied, applied_BK each."""
    drawn = Pipeline(Preset(OPERATORS, (View(),) * len(applied)), SIZE).draw(
        len(applied[0]), torch.Generator().manual_seed(seed)
    )
    return tuple(
        replace(record, applied_BK=applied_BK)
        for record, applied_BK in zip(drawn, applied, strict=True)
    )


def make_views(seed: int, count: int = 2) -> Views:
    """Similar views; operators differ from sample to sample, one sample has none."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.rand(BATCH, 3, SIZE, SIZE, generator=generator)
    images = tuple(
        0.8 * base + 0.2 * torch.rand(base.shape, generator=generator) for _ in range(count)
    )
    applied = [torch.rand(BATCH, len(OPERATORS), generator=generator) < 0.5 for _ in range(count)]
    for applied_BK in applied:
        applied_BK[0] = False
    return Views(images, records(applied, seed), label_B=torch.arange(BATCH) % CLASSES)


def configure(
    photos: Path, folder: Path, recipe: str = "mast_c5_small", **changes: Any
) -> mast.PretrainConfig:
    """A run of a recipe that trains in about a second, on photos and into a folder."""
    method = method_of(mast.configure(recipe).objective)
    objective = {"projector": PROJECTORS[method]} if method in PROJECTORS else {}
    values: dict[str, Any] = {
        "data": str(photos / "train"),
        "out": str(folder),
        "size": SIZE,
        "encoder": asdict(encoder_of(method)),
        "epochs": 2,
        "batch_size": 16,
        "device": "cpu",
        **changes,
        "objective": {**objective, **changes.get("objective", {})},
    }
    return mast.configure(recipe, **values)


def write_images(folder: Path, count: int, classes: int = 3, side: int = 40) -> Path:
    """Write JPEGs of noise around a color of their class."""
    generator = np.random.default_rng(0)
    for index in range(count):
        label = index % classes
        target = folder / f"class{label}"
        target.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 120, (side, side + 8, 3))
        pixels[..., label % 3] += 120
        Image.fromarray(pixels.astype(np.uint8)).save(target / f"{index:03d}.jpg")
    return folder


class _StopError(BaseException):
    """Ends a training as a killed process does."""


def stop_after(step: int, config: mast.PretrainConfig) -> None:
    """Train to a step, save, and end."""
    save = Training.save

    def saving(training: Training) -> None:
        save(training)
        if training.step == step:
            raise _StopError

    config.checkpoint_minutes = 0
    with patch.object(Training, "save", saving), suppress(_StopError):
        mast.pretrain(config)


def stacked(canvases: CanvasSet | Canvases) -> np.ndarray:
    """The pixels of canvases of one size, (N, S, S, 3)."""
    batch = canvases.batch(range(len(canvases))) if isinstance(canvases, CanvasSet) else canvases
    return np.stack([batch.image(at).numpy() for at in range(len(batch))])
