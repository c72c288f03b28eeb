"""Candidate edits by visual words: images that share local features, even if parts moved.

    words.npy   (WORDS, 128) uint8, directions of descriptors; benchmarks/visual_words.py writes it

N images, P points, V words: those in the file, then their mirror images.

Reference:
    Sivic and Zisserman, Video Google, ICCV 2003.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from mast.search.edits import POINTS, EditFinder, mirrored
from mast.search.nearest import nearest

FILE = Path(__file__).with_name("words.npy")
WORDS = 2048
KEPT, ABOUT = "words-1", "visual words of images"
NONE = -1.0  # padding for images with fewer points


@functools.cache
def vocabulary() -> np.ndarray:
    """Unit vectors (V, 128)."""
    words_WF = np.load(FILE).astype(np.float32)
    words_VF = np.concatenate([words_WF, mirrored(words_WF)])
    return words_VF / np.linalg.norm(words_VF, axis=1, keepdims=True)


def proposed(finder: EditFinder, positions: Sequence[int], k: int) -> np.ndarray:
    """The k images that share most words with each image or its mirror image: pairs (P, 2) of
    indices into `positions`.
    """
    words_NP = _words(finder, positions)
    count, size = len(words_NP), len(vocabulary())
    of_P, at_P = np.nonzero(words_NP != NONE)
    counts_NV = np.zeros((count, size), np.float32)
    np.add.at(counts_NV, (of_P, words_NP[of_P, at_P].astype(int)), 1)
    seen_V = (counts_NV > 0).sum(axis=0)
    seen_V = (seen_V + np.roll(seen_V, WORDS)) / 2
    weight_NV = torch.from_numpy(np.sqrt(counts_NV) * np.log((1 + count) / (1 + seen_V)))
    weight_NV = weight_NV.float().to(finder.device)
    known_N = weight_NV.abs().amax(dim=1).cpu().numpy() > 0
    near = [nearest(weight_NV, each_NV, min(count, 1 + k))[1].cpu().numpy()
            for each_NV in (weight_NV, weight_NV.roll(WORDS, dims=1))]  # fmt: skip
    pairs_P2 = np.concatenate([
        np.stack([np.arange(count).repeat(at_NK.shape[1]), at_NK.ravel()], axis=1) for at_NK in near
    ])  # fmt: skip
    return np.asarray(pairs_P2[known_N[pairs_P2].all(axis=1)])


def _words(finder: EditFinder, positions: Sequence[int]) -> np.ndarray:
    """Words of images (N, POINTS), cached or computed."""
    keys = [finder.canvases.keys[at] for at in positions]

    def look(at: int) -> np.ndarray:
        words_P = np.full(POINTS, NONE)
        found_PF = finder.thumbnail(positions[at]).descriptors()[:POINTS]
        words_P[: len(found_PF)] = (found_PF @ vocabulary().T).argmax(axis=1)
        return words_P

    return finder.store.computed(KEPT, keys, look, ("local features", "images"), ABOUT)
