"""Images that are there twice: exact copies by their pixels, near-copies by their features.

Within one set, and test images of which there is a copy among those to learn from.

N images of one set or to learn from, U of them with different pixels, M test images, D dimensions,
P pairs or copies, R rows and C columns of a block of cosines.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.display import track
from mast.measure.frozen import FrozenEncoder
from mast.measure.neighbours import block_shape, cosines, nearest
from mast.measure.sets import EvaluationData

if TYPE_CHECKING:
    from mast.data.canvas import CanvasSet

NEAR = 0.99  # cosine of standardised features; docs/log.md has what it finds and misses
DEAD = 1e-4  # share of the median deviation, below which a dimension says nothing
NAMED = 5  # pairs
MARGIN = 0.2  # by which copies stand out where something is ignored; docs/log.md
SAME = 0.95  # cosine of copies there, however many there are
OTHERS = 3  # nearest, that say what is usual around an image
FEWEST = 10  # images of which they do
_AT_ONCE = 256  # canvases
_HELD = 2**22  # pairs, before they are joined into groups


# ------------------------------------------------------------------------------------ within a set


class Copy(NamedTuple):
    """An image of a group of copies.

    Attributes:
        group: Its number, from 1, in the order of the set.
        position: In the set.
        kind: "first" of its group in the order of the set; "exact" where one of the group's images
            before it has the same pixels; else "near".
        cosine: Of its standardised features and those of the first.
    """

    group: int
    position: int
    kind: str
    cosine: float


def copies_within(
    canvases: CanvasSet, features_ND: Tensor, above: float = NEAR, margin: float | None = None
) -> list[Copy]:
    """The images that are there more than once.

    A group holds what a chain of copies connects, so that its last may be unlike its first.

    Args:
        canvases: The set. Canvases are compared for exact copies, so that one in another file
            format that lost nothing is found, too.
        features_ND: Their features, each dimension of which is standardised by the set.
        above: Cosine above which two images are near-copies.
        margin: If given, features are compared as they are, and near-copies are those, too, that
            are nearer to each other than to their nearest others by so much.

    Returns:
        The images of each group in the order of the set, group by group.
    """
    first_N = _first_of_its_pixels(canvases)
    distinct_U, of_N = np.unique(first_N, return_inverse=True)
    (x_ND,) = standardised(features_ND) if margin is None else (features_ND,)
    x_UD = x_ND[torch.from_numpy(distinct_U)]
    joined_U = connected(x_UD, above) if margin is None else apart(x_UD, above, margin)
    group_N = distinct_U[joined_U][of_N]  # the first image of each image's group
    several_N = np.bincount(group_N, minlength=len(group_N))[group_N] > 1
    at_P = np.flatnonzero(several_N)
    at_P = at_P[np.argsort(group_N[at_P], kind="stable")]
    first_P = group_N[at_P]
    number_P = 1 + np.unique(first_P, return_inverse=True)[1]
    cosine_P = F.cosine_similarity(x_ND[torch.from_numpy(at_P)], x_ND[torch.from_numpy(first_P)])
    kind_P = np.where(at_P == first_P, "first", np.where(first_N[at_P] < at_P, "exact", "near"))
    # Features of exact copies may all have been constant.
    cosine_P[torch.from_numpy(first_N[at_P] == first_P)] = 1.0
    columns = (number_P, at_P, kind_P, cosine_P)
    return [Copy(*row) for row in zip(*(column_P.tolist() for column_P in columns), strict=True)]


def standardised(reference_ND: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Features with every dimension standardised by those of some images.

    The features of many encoders all point into one direction; it is gone afterwards, and so are
    the dimensions that hardly vary.

    Args:
        reference_ND: Features that say the mean and the deviation of each dimension.
        others: More features of the same dimensions.

    Returns:
        All of them, those of the reference first.
    """
    std_D, mean_D = torch.std_mean(reference_ND, dim=0, correction=0)
    alive_D = std_D > DEAD * std_D[std_D > 0].median()
    return tuple(
        (x_MD[:, alive_D] - mean_D[alive_D]) / std_D[alive_D] for x_MD in (reference_ND, *others)
    )


def _first_of_its_pixels(canvases: CanvasSet) -> np.ndarray:
    """The position of the first image with the same pixels, of each image."""
    sum_N = canvases.checksums()
    _, of_N, counts = np.unique(sum_N, return_inverse=True, return_counts=True)
    chosen_N = counts[of_N] > 1
    first_N = np.arange(len(sum_N))
    first: dict[bytes, int] = {}
    for at, digest in zip(np.flatnonzero(chosen_N), _digests(canvases, chosen_N), strict=True):
        first_N[at] = first.setdefault(digest, int(at))
    return first_N


def apart(x_ND: Tensor, above: float, margin: float) -> np.ndarray:
    """The first image of each image's group; joined are pairs that stand out from all others.

    A cosine says little where some images have many that are like them: what counts is by how much
    that of a pair is above the mean of those of either to its `OTHERS` nearest others (cross-domain
    similarity local scaling). Four copies of one image or more are each other's nearest others, and
    are joined by their cosine alone.

    Args:
        x_ND: Features of images; of fewer than `FEWEST` only the cosine counts.
        above: Cosine above which a pair is joined in any case.
        margin: By how much it has to be above the mean.

    Reference:
        Conneau et al., Word Translation Without Parallel Data, ICLR 2018, for the scaling.
    """
    kept, alike_N = OTHERS + 1, connected(x_ND, above)
    if len(x_ND) < FEWEST:
        return alike_N
    cosine_NK, position_NK = (each.cpu() for each in nearest(x_ND, x_ND, kept + 1))
    other_NK = position_NK != torch.arange(len(x_ND))[:, None]
    other_NK[other_NK.all(dim=1), -1] = False  # one that does not find itself
    cosine_NK = cosine_NK[other_NK].view(len(x_ND), kept)
    position_NK = position_NK[other_NK].view(len(x_ND), kept)
    first_P = torch.arange(len(x_ND)).repeat_interleave(kept)
    second_P, cosine_P = position_NK.flatten(), cosine_NK.flatten()

    def around(image_P: Tensor, pair_P: Tensor) -> Tensor:
        """The mean cosine of an image to its nearest, but for that of the pair."""
        counts_PK = (position_NK[image_P] != pair_P[:, None]).double()
        counts_PK[counts_PK.all(dim=1), -1] = 0
        return (cosine_NK[image_P] * counts_PK).sum(dim=1) / counts_PK.sum(dim=1).clamp(min=1)

    lead_P = cosine_P - (around(first_P, second_P) + around(second_P, first_P)) / 2
    joined_P = lead_P > margin
    pairs = (first_P[joined_P].numpy(), second_P[joined_P].numpy())
    return _join(alike_N, [pairs])


def connected(x_ND: Tensor, above: float) -> np.ndarray:
    """The first image of each image's connected component; pairs above a cosine are connected."""
    first_N = np.arange(len(x_ND))
    held: list[tuple[np.ndarray, np.ndarray]] = []
    pairs = 0  # that are held
    rows, columns = block_shape(x_ND, x_ND)
    blocks = sum(
        math.ceil(len(x_ND) / columns) - top // columns for top in range(0, len(x_ND), rows)
    )
    found = track(cosines(x_ND, x_ND, above_diagonal=True), "comparing images", blocks)
    for top, left, cosine_RC in found:
        row_P, column_P = (places_P.cpu().numpy() for places_P in torch.where(cosine_RC > above))
        pair_P = row_P + top < column_P + left
        if pair_P.any():
            held.append((row_P[pair_P] + top, column_P[pair_P] + left))
            pairs += len(held[-1][0])
        if pairs > _HELD:
            first_N, held, pairs = _join(first_N, held), [], 0
    return _join(first_N, held)


def _join(first_N: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The first of each component, once more pairs are connected."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    row_P = np.concatenate([np.arange(len(first_N)), *(row_P for row_P, _ in pairs)])
    column_P = np.concatenate([first_N, *(column_P for _, column_P in pairs)])
    graph = coo_array((np.ones(len(row_P), bool), (row_P, column_P)), shape=2 * (len(first_N),))
    _, label_N = connected_components(graph, directed=False)
    _, first_of = np.unique(label_N, return_index=True)
    return np.asarray(first_of[label_N])


# ----------------------------------------------------------------------- between test and training


def count_copies(data: EvaluationData) -> dict[str, int]:
    """How many test images have an exact copy in each of the other parts.

    Canvases are compared, so that a copy in another file format that lost nothing is found, too.

    Args:
        data: The sets.

    Returns:
        Counts by part, 0 where there are none.
    """
    counts = {}
    for part, canvases in data.named.items():
        if part != "test":
            same_set = canvases.fingerprint == data.test.fingerprint
            counts[part] = len(data.test) if same_set else _shared(data.test, canvases)
    return counts


def _shared(test: CanvasSet, canvases: CanvasSet) -> int:
    test_M, sum_N = test.checksums(), canvases.checksums()
    # Different images may have the same checksum: only what it has in common is read and compared.
    known = set(_digests(canvases, np.isin(sum_N, test_M)))
    return sum(digest in known for digest in _digests(test, np.isin(test_M, sum_N)))


def _digests(canvases: CanvasSet, chosen_N: np.ndarray) -> Iterator[bytes]:
    """Hashes of the pixels of some canvases."""
    index_B = np.flatnonzero(chosen_N)
    for start in range(0, len(index_B), _AT_ONCE):
        batch = canvases.batch(index_B[start : start + _AT_ONCE])
        for at in range(len(batch)):
            sheets_SHWC = batch.sheets(at).numpy()
            shape = repr(sheets_SHWC.shape).encode()
            yield hashlib.blake2b(shape + sheets_SHWC.tobytes(), digest_size=16).digest()


def near_copies(
    encoder: FrozenEncoder, data: EvaluationData, above: float = NEAR
) -> dict[str, Any]:
    """Test images that look to an encoder almost like one that may be learned from.

    Args:
        encoder: Its features are those that the protocols use.
        data: The sets; training and validation images may be learned from.
        above: Least cosine of a test image and the nearest of the others. Each dimension is
            standardised by what may be learned from, as the features of many encoders all point
            into one direction.

    Returns:
        How many test `images` there are, exact copies among them; the cosine `above` which they
        are counted; and the first `pairs`, the most similar first: test image, part and name of
        the other, cosine.
    """
    pool_ND = encoder.pool_features(data.pool, data.size).to(encoder.device)
    test_MD = encoder.features(data.test, data.size).to(encoder.device)
    pool_ND, test_MD = standardised(pool_ND, test_MD)
    cosine_M1, position_M1 = nearest(pool_ND, test_MD, 1)
    cosine_M, position_M = cosine_M1[:, 0].cpu(), position_M1[:, 0].cpu()
    places = [
        (part, name)
        for part, canvases in data.named.items()
        if part != "test"
        for name in canvases.identifiers
    ]
    order = cosine_M.argsort(descending=True, stable=True)[:NAMED].tolist()
    return {
        "images": int((cosine_M > above).sum()),
        "above": above,
        "pairs": [
            [data.test.identifiers[at], *places[int(position_M[at])], round(float(cosine_M[at]), 4)]
            for at in order
            if cosine_M[at] > above
        ],
    }
