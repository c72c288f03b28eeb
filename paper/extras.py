"""Further outputs of a run for the paper's figures.

N images, P pairs of views, C dimensions of the representation, D of the embedding, T numbers that
an operator records.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from mast.analyses import ChangeBy
from mast.augment import Pipeline, difference
from mast.core.compute import Compute
from mast.core.errors import UserError
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import image_identity
from mast.evaluation.result import results_in
from mast.runs.load import REPRESENTATIONS
from mast.runs.subject import EXTRAS, OpenedRun, outputs
from paper.analyses.predicted_operators import Pairs
from paper.outputs import MethodOutput

DRAWS = 4  # pairs of views of an image
BATCH = 256  # pairs that are drawn at a time


def pairs_of(opened: OpenedRun) -> Callable[[], Pairs] | None:
    """`DRAWS` pairs of views of every image, as pretraining draws them with all operators; None for
    methods without two views.
    """
    if len(opened.config.preset.views) != 2:
        return None
    return functools.cache(lambda: _drawn(opened))


def _drawn(opened: OpenedRun) -> Pairs:
    config, device = opened.config, opened.device
    canvases, method = opened.canvases.subset(opened.index_N), opened.method.to(device)
    generator = torch.Generator().manual_seed(opened.seed)
    pipeline = Pipeline(config.preset, config.size)
    position_P = np.tile(np.arange(len(canvases)), DRAWS)
    seen: list[list[Tensor]] = []  # representations, and embeddings, of both views
    differences: dict[str, list[Tensor]] = {name: [] for name in pipeline.names}
    for start in range(0, len(position_P), BATCH):
        batch = canvases.batch(position_P[start : start + BATCH])
        records = pipeline.draw(len(batch), generator)
        views = pipeline.views(batch.to(device), records)
        with torch.inference_mode():
            of_batch = [
                of(images) for of in (method.final_encoder, method.embed) for images in views.images
            ]
        seen.append([output_BD.float().cpu() for output_BD in of_batch])
        for name, parts in differences.items():
            parts.append(difference(views, name).cpu())
    first_PC, second_PC, first_PD, second_PD = map(torch.cat, zip(*seen, strict=True))
    drawn = {name: torch.cat(parts).double().numpy() for name, parts in differences.items()}
    return Pairs(position_P, (first_PC, second_PC), (first_PD, second_PD), drawn)


def uncertainty_of(opened: OpenedRun) -> Callable[[ChangeBy | None], Tensor] | None:
    """The trace of the predicted covariance (N,) of the images, changed by an operator or as they
    are; None where the method predicts none.
    """
    try:
        output = MethodOutput(opened.method, "uncertainty").eval()
    except UserError:  # it predicts none
        return None
    predicted = FrozenEncoder(output, Compute(opened.device))
    chosen = opened.canvases.subset(opened.index_N)
    unsure = outputs(predicted, chosen, opened.config.size, opened.seed)
    return lambda change: unsure(change).squeeze(1)


def hits_of(opened: OpenedRun) -> Mapping[str, np.ndarray]:
    """Whether a linear probe on the representation is right, (N,) of 1 and 0, by task; only where
    `linear` was measured on these images.
    """
    tested = image_identity(opened.canvases)
    return {
        target: measured.each["top1"].numpy()[opened.index_N]
        for result in results_in(opened.folder.path)
        if result.protocol == "linear" and result.images == tested
        for target, measured in result.targets.items()
        if len(measured.each.get("top1", ())) == len(opened.canvases)
    }


def register() -> None:
    """Add them to what runs are looked at with."""
    EXTRAS.update(pairs=pairs_of, uncertainty=uncertainty_of, hits=hits_of)
    REPRESENTATIONS["ensemble"] = functools.partial(MethodOutput, output="ensemble")
