"""Images of a set that are there twice: exact copies by pixels, near-copies by features and hashes.

N images of a set, U of them with different pixels, D dimensions, P pairs or copies, K nearest, M
images that are hashed, T ways to turn them, B bits of a hash, R rows and C columns of a block of
cosines.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.display import track
from mast.data.canvas import CanvasSet
from mast.search.index import alike_hashes, nearest_of_all
from mast.search.nearest import FEWEST, NEAR, block_shape, cosines, nearest, standardised

MARGIN = 0.2  # by which copies stand out where something is ignored; docs/log.md
FEW = 50  # images below which it is wider: half the wrong copies, a fifth fewer right ones
WIDE = 0.3
SAME = 0.95  # cosine of copies there, however many there are
COPIES = 5  # of an image, at most, that are left out of its `neighbour_mean`
CLEAR = 1.0  # margins by which several copies stand out; docs/log.md
OTHERS = 3  # nearest after these, which do
MANY, PROPOSED = 200_000, 32  # images above which an index proposes so many for each
HASH = 4  # of the 64 bits of a perceptual hash, up to which copies differ
_log = logging.getLogger("mast")


class Copy(NamedTuple):
    """An image of a group of copies."""

    group: int  # its number, from 1, in the order of the set
    position: int
    kind: str  # "first" of its group; "exact" where one before has its pixels; else "near"
    cosine: float  # of its standardised features and those of the first


def copies_within(
    canvases: CanvasSet,
    features_ND: Tensor,
    above: float = NEAR,
    margin: float | None = None,
    not_copies: Collection[tuple[int, int]] = (),
    hashes: bool = False,
    turned: bool = False,
) -> list[Copy]:
    """The images that are there more than once: those of each group, all copies of its first.

    Args:
        canvases: The set; exact copies are found by canvases, whatever the format of their files.
        features_ND: Their features, standardised by the distinct images.
        above: Cosine above which two images are near-copies.
        margin: If given, features are compared as they are; see `grouped`.
        not_copies: Pairs of positions that are no near-copies, in either order.
        hashes: Whether images with like perceptual hashes are near-copies, too.
        turned: Whether one of them may be mirrored, and turned by quarters, before it is hashed.
    """
    first = dict[bytes, int]()  # the position of the first image with the same pixels
    first_N = np.array(
        [first.setdefault(each, at) for at, each in enumerate(canvases.pixel_digests)]
    )
    distinct_U, of_N = np.unique(first_N, return_inverse=True)
    x_UD = features_ND[torch.from_numpy(distinct_U)]
    if margin is None:
        (x_UD,) = standardised(x_UD)
    apart = {(min(pair), max(pair)) for pair in of_N[np.array([*not_copies], int).reshape(-1, 2)]}
    hash_TUB = None
    if hashes:
        hash_UTB = torch.from_numpy(canvases.hashes_N8B[distinct_U].astype(np.float32))
        hash_TUB = hash_UTB[:, : 8 if turned else 1].transpose(0, 1).to(x_UD.device)
    # The first of several frames says nothing of the others: it is like no other image.
    alone_U = [bool(canvases.stacks) and canvases.identifiers[at] in canvases.stacks
               for at in distinct_U]  # fmt: skip
    x_UD[torch.tensor(alone_U)] = 0
    if hash_TUB is not None:
        hash_TUB[:, torch.tensor(alone_U)] = 0
    joined_U = grouped(x_UD, above, margin, apart, hash_TUB)
    group_N = distinct_U[joined_U][of_N]  # the first image of each image's group
    several_N = np.bincount(group_N, minlength=len(group_N))[group_N] > 1
    at_P = np.flatnonzero(several_N)
    at_P = at_P[np.argsort(group_N[at_P], kind="stable")]
    first_P = group_N[at_P]
    number_P = 1 + np.unique(first_P, return_inverse=True)[1]
    one_PD, first_PD = (x_UD[torch.from_numpy(of_N[end_P])] for end_P in (at_P, first_P))
    cosine_P = F.cosine_similarity(one_PD, first_PD)
    kind_P = np.where(at_P == first_P, "first", np.where(first_N[at_P] < at_P, "exact", "near"))
    # Features of exact copies may all have been constant.
    cosine_P[torch.from_numpy(first_N[at_P] == first_P)] = 1.0
    columns = (number_P, at_P, kind_P, cosine_P)
    return [Copy(*row) for row in zip(*(column_P.tolist() for column_P in columns), strict=True)]


def first_copies(canvases: CanvasSet) -> np.ndarray:
    """The position of the first copy of each image by pixels or hash, or its own: (N,).

    Features do not count: a bad encoder's would make copies of images that are merely similar.
    """
    first_N, number = np.arange(len(canvases)), 0
    for copy in copies_within(canvases, torch.zeros(len(canvases), 1), above=1, hashes=True):
        number = copy.position if copy.kind == "first" else number
        first_N[copy.position] = number
    return first_N


def neighbour_mean(nearest_NK: Tensor, margin: float) -> Tensor:
    """The mean cosine of each image to the `OTHERS` that follow its own copies, (N,).

    `nearest_NK` are the cosines of the nearest, the image itself among them.

    Its copies are taken to be as many of the nearest, up to `COPIES`, as all exceed the mean of
    those that follow by `CLEAR` times the margin; the nearest alone where there are none.
    """
    cosine_NK = nearest_NK[:, 1 : 1 + COPIES + OTHERS]  # the first is itself, or what equals it
    after_NM = cosine_NK[:, 1:].unfold(1, OTHERS, 1).mean(dim=2)
    clear_NM = cosine_NK[:, :COPIES] - after_NM > CLEAR * margin
    last_N = (clear_NM * torch.arange(COPIES, device=cosine_NK.device)).amax(dim=1)
    return after_NM.gather(1, last_N[:, None]).squeeze(1)


def grouped(
    x_ND: Tensor,
    above: float,
    margin: float | None = None,
    apart: Collection[tuple[int, int]] = (),
    hash_TNB: Tensor | None = None,
) -> np.ndarray:
    """The first image of each image's group, of which all others are near-copies.

    In the order of the set, an image that is in no group yet begins one, with all images after it
    that are its near-copies and in no group. So no group has ends that differ.

    Near-copies are pairs of a cosine `above` this, but those `apart`. By `margin` those are, too,
    whose cosine exceeds by this much the average `neighbour_mean` of the two (cross-domain
    similarity local scaling), among `FEWEST` images or more; and by `hash_TNB` those of which at
    most `HASH` bits differ of the first hash of one and any of the other.

    Reference:
        Conneau et al., Word Translation Without Parallel Data, ICLR 2018, for the scaling.
    """
    first_N = np.arange(len(x_ND))
    scaled = None if len(x_ND) < FEWEST else margin
    by_index, many = find_spec("faiss") is not None, len(x_ND) > MANY
    if many and not by_index:
        _log.warning("%d images: all pairs are compared; with faiss-cpu installed an index "
                     "proposes those that may be copies", len(x_ND))  # fmt: skip
    ways = _proposed if many and by_index else _compared
    for image, near_P in ways(x_ND, above, scaled, hash_TNB):
        if first_N[image] == image:
            free_P = near_P[(near_P > image) & (first_N[near_P] == near_P)]
            first_N[[at for at in free_P.tolist() if (image, at) not in apart]] = image
    return first_N


Pairs = Iterator[tuple[int, np.ndarray]]  # images in their order, and their near-copies (P,)


def _compared(x_ND: Tensor, above: float, margin: float | None, hash_TNB: Tensor | None) -> Pairs:
    """Near-copies by comparing all pairs; an image may come several times."""
    least_N = None
    if margin is not None:
        nearest_NK = nearest(x_ND, x_ND, 1 + COPIES + OTHERS)[0]
        least_N = (neighbour_mean(nearest_NK, margin) + margin) / 2
    rows, columns = block_shape(x_ND, x_ND)
    blocks = sum(
        math.ceil(len(x_ND) / columns) - top // columns for top in range(0, len(x_ND), rows)
    )
    found = track(cosines(x_ND, x_ND, above_diagonal=True), "comparing images", blocks)
    for top, left, cosine_RC in found:
        near_RC = cosine_RC > above
        if least_N is not None:
            least_R1 = least_N[top : top + len(cosine_RC), None]
            near_RC |= cosine_RC > least_R1 + least_N[left : left + cosine_RC.shape[1]]
        if hash_TNB is not None:
            of_RB = hash_TNB[0, top:][: len(cosine_RC)]
            for of_NB in hash_TNB:
                of_CB = of_NB[left:][: cosine_RC.shape[1]]
                near_RC |= of_RB @ of_CB.T >= of_RB.shape[1] - 2 * HASH
        for row in near_RC.any(dim=1).nonzero().flatten().tolist():
            yield top + row, left + near_RC[row].nonzero().flatten().cpu().numpy()


def _proposed(x_ND: Tensor, above: float, margin: float | None, hash_TNB: Tensor | None) -> Pairs:
    """As `_compared`, among the `PROPOSED` nearest of each image, and those of like hashes."""
    cosine_NK, position_NK = nearest_of_all(x_ND, PROPOSED)
    near_NK = cosine_NK > above
    if margin is not None:
        least_N = (neighbour_mean(torch.from_numpy(cosine_NK), margin).numpy() + margin) / 2
        near_NK |= cosine_NK > least_N[:, None] + least_N[position_NK]
    of_P, k_P = np.nonzero(near_NK & (position_NK >= 0))
    pairs_P2 = np.stack([of_P, position_NK[of_P, k_P]], axis=1)
    if hash_TNB is not None:
        pairs_P2 = np.concatenate([pairs_P2, alike_hashes(hash_TNB, HASH)])
    pairs_P2 = np.unique(np.sort(pairs_P2[pairs_P2[:, 0] != pairs_P2[:, 1]], axis=1), axis=0)
    first_M, start_M = np.unique(pairs_P2[:, 0], return_index=True)
    yield from zip(first_M.tolist(), np.split(pairs_P2[:, 1], start_M[1:]), strict=False)
