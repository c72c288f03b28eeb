"""Scores to watch a run by, while it trains."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from mast.data.pieces import groups_of
from mast.data.source import UNLABELLED
from mast.measure.compute import Compute
from mast.measure.features import extract
from mast.measure.neighbours import knn_accuracy
from mast.measure.spectrum import effective_rank

if TYPE_CHECKING:
    from mast.data.canvas import CanvasSet


def online_scores(
    encoder: nn.Module,
    canvases: CanvasSet,
    size: int,
    limit: int = 4096,
    compute: Compute | None = None,
) -> dict[str, float]:
    """Scores to watch a run by; they are measured on its own training images.

    Args:
        encoder: The encoder, on any device; its mode is restored.
        canvases: The training images.
        size: Side of a view in pixels.
        limit: At most so many images, evenly spaced; every fifth is a query of the kNN, and of
            tiles and pages those of every fifth file.
        compute: Processes that share the images, each of which must call this; by default this one
            does it all.

    Returns:
        "online/effective_rank", and of five images or more with labels "online/knn" in percent,
        the mean over tasks.
    """
    stride = max(1, len(canvases) // limit)
    index_N = np.arange(0, len(canvases), stride)[:limit]
    # of canvases: views of the whole images would be made of all of the set first
    some = replace(canvases.part(index_N, canvases.name), test_views=None)
    features_NC = extract(encoder, some, size, compute)
    scores = {"online/effective_rank": effective_rank(features_NC)}
    groups_N = groups_of(some.identifiers)
    number_N = np.arange(len(index_N)) if groups_N is None else groups_N
    query_N = torch.from_numpy(number_N) % 5 == 4
    accuracies = []
    for target in canvases.targets.values() if len(index_N) > 4 else ():
        labels_N = torch.from_numpy(target[index_N])
        bank_N, asked_N = (some_N & (labels_N != UNLABELLED) for some_N in (~query_N, query_N))
        if not bank_N.any() or not asked_N.any():
            continue
        accuracies.append(
            knn_accuracy(
                features_NC[bank_N],
                labels_N[bank_N],
                features_NC[asked_N],
                labels_N[asked_N],
                k=min(20, int(bank_N.sum())),
                temperature=0.07,
            )
        )
    if accuracies:
        scores["online/knn"] = float(np.mean(accuracies))
    return scores
