"""Looking into a run: its analyses as arrays and figures in the run folder."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mast.analyze import ANALYSES, Arrays, Subject
from mast.analyze.figure import save
from mast.core.checkpoint import write_atomically
from mast.core.errors import UserError, unknown
from mast.core.launch import Device, find_device
from mast.core.run import RunFolder
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.evaluate import FrozenEncoder
from mast.evaluate.robust import changed_by
from mast.loading import load_method
from mast.methods import Embedding


class Insight(NamedTuple):
    """What an analysis gave.

    Attributes:
        name: Of the analysis.
        title: Its heading.
        text: What to see in the figure, or why there is none.
        file: The arrays, beside a .png and a .svg of the same name; None where there are none.
    """

    name: str
    title: str
    text: str
    file: Path | None


def analyze(
    run: str | Path,
    data: str | None = None,
    analyses: Sequence[str] = tuple(ANALYSES),
    beside: Sequence[str] = (),
    images: int = 512,
    device: Device = "auto",
    seed: int = 0,
) -> list[Insight]:
    """Look into a run: arrays first, then figures, in `analysis/` of the run folder.

    Args:
        run: A run folder with its checkpoint.
        data: Images to look at, such as `flowers17/test`; labels are not needed. Without any, the
            analyses that need none are made.
        analyses: Which: curves, masks, invariance.
        beside: Other run folders to stand beside this one on the same images, such as VICReg's.
        images: How many images are looked at, drawn at random.
        device: auto, cpu or cuda.
        seed: Of the images and of the changes that are made to them.

    Returns:
        One insight an analysis; what the run lacks for one is said in its text.

    Raises:
        UserError: No run, or no images, at that place; an unknown analysis.
    """
    for name in analyses:
        if name not in ANALYSES:
            raise unknown("analysis", name, ANALYSES)
    if images < 1:
        raise UserError(f"images must be 1 or more, got {images}")
    where = find_device(device)
    subject = _subject(run, data, images, where, seed)
    others = tuple(_subject(other, data, images, where, seed) for other in beside)
    subject = replace(subject, beside=others)
    folder = RunFolder(run).analysis
    return [_look(name, subject, folder) for name in analyses]


def _look(name: str, subject: Subject, folder: Path) -> Insight:
    analysis = ANALYSES[name]()
    lacking = analysis.lacking(subject)
    if lacking is not None:
        return Insight(name, analysis.title, lacking, None)
    arrays = analysis.compute(subject)
    file = folder / f"{name}.npz"
    write_atomically(file, lambda partial: _write(partial, arrays))
    save(analysis.draw(arrays), file)
    return Insight(name, analysis.title, analysis.caption(arrays), file)


def _write(path: Path, arrays: Arrays) -> None:
    named: dict[str, Any] = dict(arrays)
    with path.open("wb") as file:
        np.savez(file, **named)


def _subject(
    run: str | Path, data: str | None, images: int, device: torch.device, seed: int
) -> Subject:
    folder = RunFolder(run).require()
    method = load_method(run)
    embedding = Embedding(method).eval()
    with torch.no_grad():
        mask_DK = embedding.masks()
    embed = None
    if data is not None:
        size = method.encoder.size
        canvases = open_canvas(DataConfig(data), size)
        order_N = np.random.default_rng(seed).permutation(len(canvases))
        chosen = canvases.subset(np.sort(order_N[:images]))
        embed = _embedder(FrozenEncoder(embedding, device), chosen, size, seed)
    return Subject(folder.path.name, embedding.operators, mask_DK, folder.read_metrics(), embed)


def _embedder(
    encoder: FrozenEncoder, canvases: CanvasSet, size: int, seed: int
) -> Callable[[tuple[str, float | None] | None], Tensor]:
    """Embeddings of the images as they are, which are kept, or after an operator."""

    def embed(change: tuple[str, float | None] | None) -> Tensor:
        if change is None:
            return encoder.features(canvases, size)
        return encoder.take(canvases, size, changed_by(*change, size, len(canvases), seed))

    return embed
