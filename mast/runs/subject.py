"""What analyses get of a run."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mast.analyses import ChangeBy, Images, Subject
from mast.augment import center_views
from mast.config import PretrainConfig, configuration_of
from mast.core.compute import Compute
from mast.core.reading import shown
from mast.core.run import RunFolder
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.encoders.changes import changed_by
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import labelled_images
from mast.methods import Embedding, Method
from mast.runs.load import load_method

THUMBNAIL = 64  # pixels


class OpenedRun(NamedTuple):
    """A run and the images to analyze it with."""

    folder: RunFolder
    method: Method
    config: PretrainConfig
    canvases: CanvasSet  # all of the set
    index_N: np.ndarray  # the chosen ones
    device: torch.device
    seed: int


# Further outputs for analyses, by name; None if a run does not have it.
EXTRAS: dict[str, Callable[[OpenedRun], Any]] = {}


def subject_of(
    folder: RunFolder, data: DataConfig | None, images: int, device: torch.device, seed: int
) -> Subject:
    """The subject of analyses: a run, with at most `images` images of `data`, if any.

    The seed chooses the images and their changes.
    """
    config = configuration_of(folder)
    method = load_method(folder.path)
    embedding = Embedding(method).eval()
    with torch.no_grad():
        mask_DK = embedding.masks()
    subject = Subject(
        name=folder.path.resolve().name,
        method=config.method,
        trained_with=config.preset.operators,
        operators=embedding.operators,
        mask_DK=mask_DK,
        epochs=config.epochs,
        stages=_stages(config),
        log=folder.read_metrics(),
        folder=folder.path,
    )
    if data is None:
        return subject
    size = config.size
    canvases = labelled_images(open_canvas(data, size, model=method))
    order_N = np.random.default_rng(seed).permutation(len(canvases))
    index_N = np.sort(order_N[:images])
    chosen = canvases.subset(index_N)
    opened = OpenedRun(folder, method, config, canvases, index_N, device, seed)
    return replace(
        subject,
        images=_images(chosen),
        embed=outputs(FrozenEncoder(embedding, Compute(device)), chosen, size, seed),
        extras={name: extra(opened) for name, extra in EXTRAS.items()},
    )


def _stages(config: PretrainConfig) -> tuple[tuple[str, float], ...]:
    """Events of the schedule, with their epoch."""
    begin = config.schedule.stage1 * config.epochs
    shown = config.schedule.staged and 0 < begin < config.epochs
    return (("operators begin to compose", begin),) if shown else ()


def outputs(
    encoder: FrozenEncoder, canvases: CanvasSet, size: int, seed: int
) -> Callable[[ChangeBy | None], Tensor]:
    """A module's output for unchanged images, which is cached, or after an operator."""

    def after(change: ChangeBy | None) -> Tensor:
        if change is None:
            return encoder.features(canvases, size)
        return encoder.extract(canvases, size, changed_by(*change, size, len(canvases), seed))

    return after


def _images(chosen: CanvasSet) -> Images:
    """Thumbnails and labels of the chosen images."""
    view_NCHW = shown(center_views(chosen.batch(np.arange(len(chosen))), THUMBNAIL))
    thumbnails_NPP3 = (view_NCHW * 255 + 0.5).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    labels, classes = dict(chosen.targets), dict(chosen.classes)
    return Images(tuple(chosen.identifiers), thumbnails_NPP3, labels, classes, chosen.units)
