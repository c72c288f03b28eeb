"""A run as the analyses see it."""

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mast.analyses import ChangeBy, Images, Pairs, Subject
from mast.augment import Pipeline, center_views, difference
from mast.config import PretrainConfig, configuration_of
from mast.core.compute import Compute
from mast.core.errors import UserError
from mast.core.reading import shown
from mast.core.run import RunFolder
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.encoders.changes import changed_by
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import image_identity, labelled_images
from mast.evaluation.result import results_in
from mast.methods import Embedding, Method, MethodOutput
from mast.runs.load import load_method
from mast.runs.scores import scores_of

THUMBNAIL = 64  # pixels
DRAWS = 4  # pairs of views of an image
BATCH = 256  # pairs that are drawn at a time


def subject_of(
    folder: RunFolder, data: DataConfig | None, images: int, device: torch.device, seed: int
) -> Subject:
    """A run as the analyses see it, with at most `images` images of `data`, if any.

    The seed is of the choice of images and of the changes made to them.
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
        scores=tuple(scores_of(folder)),
    )
    if data is None:
        return subject
    size = config.size
    canvases = labelled_images(open_canvas(data, size, model=method))
    order_N = np.random.default_rng(seed).permutation(len(canvases))
    index_N = np.sort(order_N[:images])
    chosen = canvases.subset(index_N)
    subject = replace(
        subject,
        images=_images(folder, canvases, chosen, index_N),
        embed=outputs(FrozenEncoder(embedding, Compute(device)), chosen, size, seed),
    )
    if len(config.preset.views) == 2:
        pairs = functools.cache(lambda: pairs_of(method, config, chosen, device, seed))
        subject = replace(subject, pairs=pairs)
    try:
        uncertain = MethodOutput(method, "uncertainty").eval()
    except UserError:  # it predicts none
        return subject
    predicted = FrozenEncoder(uncertain, Compute(device))
    unsure = outputs(predicted, chosen, size, seed)
    return replace(subject, uncertainty=lambda change: unsure(change).squeeze(1))


def _stages(config: PretrainConfig) -> tuple[tuple[str, float], ...]:
    """What begins in the middle of a run, and at which epoch."""
    schedule = config.schedule
    if not schedule.staged:
        return ()
    stages = (
        ("operators begin to compose", schedule.stage1 * config.epochs),
        ("all operators act", schedule.full * config.epochs),
    )
    return tuple(stage for stage in stages if 0 < stage[1] < config.epochs)


def outputs(
    encoder: FrozenEncoder, canvases: CanvasSet, size: int, seed: int
) -> Callable[[ChangeBy | None], Tensor]:
    """A module's output for the images as they are, which is stored, or after an operator."""

    def after(change: ChangeBy | None) -> Tensor:
        if change is None:
            return encoder.features(canvases, size)
        return encoder.extract(canvases, size, changed_by(*change, size, len(canvases), seed))

    return after


def pairs_of(
    method: Method, config: PretrainConfig, canvases: CanvasSet, device: torch.device, seed: int
) -> Pairs:
    """`DRAWS` pairs of views of every image, as pretraining draws them with all operators."""
    pipeline = Pipeline(config.preset, config.size)
    generator = torch.Generator().manual_seed(seed)
    method = method.to(device)
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


def _images(
    folder: RunFolder, canvases: CanvasSet, chosen: CanvasSet, index_N: np.ndarray
) -> Images:
    """Thumbnails and labels of the chosen images, and whether the linear probe is right."""
    view_NCHW = shown(center_views(chosen.batch(np.arange(len(chosen))), THUMBNAIL))
    thumbnails_NPP3 = (view_NCHW * 255 + 0.5).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    tested = image_identity(canvases)
    hits = {
        target: measured.each["top1"].numpy()[index_N]
        for result in results_in(folder.path)
        if result.protocol == "linear" and result.images == tested
        for target, measured in result.targets.items()
        if len(measured.each.get("top1", ())) == len(canvases)
    }
    labels, classes = dict(chosen.targets), dict(chosen.classes)
    names = tuple(chosen.identifiers)
    return Images(names, thumbnails_NPP3, labels, classes, hits, chosen.units)
