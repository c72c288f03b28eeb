"""Find groups of copies: exact ones by pixels, edited ones proposed by features and hashes.

Legend: N images, U images with distinct pixels, D dimensions, P pairs or copies, K nearest images,
M hashed images, T orientations (turned or mirrored), B bits of a hash, R rows and C columns of a
block of cosines.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from torch import Tensor

from mast.core.display import track
from mast.data.canvas import CanvasSet
from mast.search.edits import AGREED, CHANGES, DOUBTED, NEARLY, SHOWN, Edit, EditFinder
from mast.search.index import alike_hashes, nearest_of_all
from mast.search.nearest import (
    FEWEST,
    NEAR,
    block_shape,
    cosines,
    directions,
    nearest,
    standardised,
)
from mast.search.words import proposed

MARGIN = 0.2  # cosine margin of copies if something is ignored; docs/log.md
FEW = 50  # images below which the margin is wider: half the false copies, a fifth fewer true ones
WIDE = 0.3
SAME = 0.95  # cosine above which images are similar at any margin
COPIES = 5  # most copies of an image to exclude from its `neighbour_mean`
CLEAR = 1.0  # margins by which several copies exceed the next neighbors; docs/log.md
OTHERS = 3  # neighbors after these in the mean
MANY, NEAREST = 200_000, 32  # images above which an index returns this many neighbors
PROPOSED, ALONE = 3, 5  # nearest images to check for edits, with and without visual words
WORDED = 50_000  # images up to which visual words of all pairs are compared; docs/log.md
RESIZED = 0.95  # ratio of widths from which `changes` mentions resizing
HASH, HASHED = 4, 10  # differing bits of 64: at most, for copies and for candidate edits
_log = logging.getLogger("mast")


class Copy(NamedTuple):
    """An image of a group of copies."""

    group: int  # number of the group from 1, in the order of the set
    position: int
    level: str  # "first" of the group, exact, near, edited or similar
    cosine: float  # of the features with those of the first
    agreement: float = 1.0  # with the first after alignment; NaN if not compared
    changes: str = ""  # differences from the first, in words
    shows_more: bool = False  # than the first

    @property
    def is_flat(self) -> bool:
        """Whether it has too little detail to be verified: features or hashes alone agree."""
        return self.level in ("near", "edited") and math.isnan(self.agreement)


def copies_within(
    canvases: CanvasSet,
    features_ND: Tensor,
    level: str = "edited",
    above: float | None = None,
    not_copies: Collection[tuple[int, int]] = (),
    fixed: Collection[str] = (),
    strict: Collection[str] = (),
) -> list[Copy]:
    """Find groups of copies; all images of a group are copies of its first image.

    Args:
        canvases: The set. Exact copies have equal pixels, in any file format.
        features_ND: Features of the images, which propose candidates.
        level: exact, near, edited or similar; each level includes those before it.
        above: Cosine above which images are similar, for features that need no standardization;
            by default, features are standardized over distinct images, and it is 0.99.
        not_copies: Pairs of positions that are not copies, in either order.
        fixed: Properties in which copies may differ only as near copies do.
        strict: Properties in which copies must agree.
    """
    first_N, distinct_U, of_N = _distinct(canvases)
    x_UD = features_ND[torch.from_numpy(distinct_U)]
    if above is None:
        (x_UD,), above = standardised(x_UD), NEAR
    apart = {(min(pair), max(pair)) for pair in of_N[np.array([*not_copies], int).reshape(-1, 2)]}
    hash_UTB = torch.from_numpy(canvases.hashes_N8B[distinct_U].astype(np.float32))
    hash_TUB = hash_UTB.transpose(0, 1).to(x_UD.device)
    # One frame of several does not represent the image, so it matches no other image.
    alone_U = torch.tensor([bool(canvases.stacks) and canvases.identifiers[at] in canvases.stacks
                            for at in distinct_U])  # fmt: skip
    x_UD[alone_U], hash_TUB[:, alone_U] = 0, 0
    joined_U, edits = np.arange(len(distinct_U)), dict[tuple[int, int], Edit]()
    if level != "exact":
        near_only = level == "near"
        fixed, strict = {*fixed}, {*strict}

        def is_allowed(edit: Edit) -> bool:
            names = {*edit.changes()}
            moved, all_changed = ({CHANGES[name] for name in of} for of in (names - NEARLY, names))
            return not (moved & fixed or all_changed & strict or (near_only and not edit.is_near))

        edits = _edits(canvases, distinct_U, x_UD, hash_TUB, apart, is_allowed, near_only)
        for one, other in sorted(edits):
            joined_U[other] = one
    if level == "similar":
        usual = MARGIN if len(canvases) >= FEW else WIDE
        joined_U = grouped(x_UD, above, usual, apart, joined_U)
    group_N = distinct_U[joined_U][of_N]  # the first image of each image's group
    several_N = np.bincount(group_N, minlength=len(group_N))[group_N] > 1
    at_P = np.flatnonzero(several_N)
    at_P = at_P[np.argsort(group_N[at_P], kind="stable")]
    found, number = list[Copy](), 0
    for at in at_P.tolist():
        first_at, own = int(group_N[at]), int(of_N[at])
        number += at == first_at
        if first_N[at] == first_at:
            found.append(Copy(number, at, "first" if at == first_at else "exact", 1.0))
            continue
        ends = int(of_N[first_at]), own
        cosine = float(F.cosine_similarity(x_UD[ends[0]], x_UD[ends[1]], dim=0))
        edit = edits.get(ends)
        verified = "similar" if edit is None else "near" if edit.is_near else "edited"
        of_copy = "exact" if first_N[at] < at else verified
        agreement = math.nan if edit is None else edit.agreement
        changes = _named(edit, canvases, first_at, at) if edit else ""
        more = edit is not None and edit.filled < SHOWN and not edit.plain
        found.append(Copy(number, at, of_copy, cosine, agreement, changes, more))
    return found


def _named(edit: Edit, canvases: CanvasSet, first: int, at: int) -> str:
    """Differences from the first image in words, including size."""
    longer = [max(each.full_width, each.full_height)
              for each in (canvases.facts[first], canvases.facts[at])]  # fmt: skip
    share = edit.scale * longer[1] / max(1, longer[0])
    names = [*edit.changes().values()]
    if not RESIZED < share < 1 / RESIZED:
        names.append(f"resized to {100 * share:.0f} %")
    return ", ".join(names) or "re-encoded"


def _edits(
    canvases: CanvasSet,
    distinct_U: np.ndarray,
    x_UD: Tensor,
    hash_TUB: Tensor,
    apart: Collection[tuple[int, int]],
    is_allowed: Callable[[Edit], bool],
    near_only: bool,
) -> dict[tuple[int, int], Edit]:
    """Find edits: pairs of the first image of a group and an edit of it.

    Verifies candidate pairs from features and hashes, then each connected component against its
    first image. Images without detail are judged by features and hashes.
    """
    finder = EditFinder(canvases, x_UD.device)
    unit_UD = directions(x_UD)

    def is_edit(pair: tuple[int, int], edit: Edit) -> bool:
        one, other = pair
        close = bool(unit_UD[one] @ unit_UD[other] > NEAR) or bool(
            (hash_TUB[:, other] @ hash_TUB[0, one]).max() >= hash_TUB.shape[2] - 2 * HASH
        )
        if edit.agreement < DOUBTED:
            return False
        # Agreement may be NaN, and smooth images agree by chance.
        if not close and not (edit.agreement >= AGREED and edit.points):
            return False
        return is_allowed(edit)

    def edits_of(pairs: list[tuple[int, int]]) -> dict[tuple[int, int], Edit]:
        asked = [pair for pair in pairs if pair not in apart]
        found = finder([(int(distinct_U[one]), int(distinct_U[other])) for one, other in asked])
        return {pair: edit for pair, edit in zip(asked, found, strict=True) if is_edit(pair, edit)}

    worded = not near_only and len(x_UD) <= WORDED
    shared_P2 = proposed(finder, distinct_U.tolist(), PROPOSED) if worded else None
    known = edits_of(candidates(x_UD, hash_TUB, shared_P2))
    ends_P2 = np.array([*known], int).reshape(-1, 2)
    component_U = connected_components(_links(ends_P2, len(x_UD)), directed=False)[1]
    groups = defaultdict[int, list[int]](list)
    for at in sorted({*ends_P2.ravel().tolist()}):
        groups[component_U[at]].append(at)
    open_groups, found = [*groups.values()], dict[tuple[int, int], Edit]()
    while open_groups:  # check each component's first image, then the rest
        asked = [(first, other) for first, *others in open_groups for other in others]
        known |= edits_of([pair for pair in asked if pair not in known])
        found |= {pair: known[pair] for pair in asked if pair in known}
        rest = [[at for at in others if (first, at) not in known]
                for first, *others in open_groups]  # fmt: skip
        open_groups = [group for group in rest if len(group) > 1]
    return found


def candidates(
    x_UD: Tensor, hash_TUB: Tensor, shared_P2: np.ndarray | None = None
) -> list[tuple[int, int]]:
    """Candidate pairs: nearest by features, similar hashes and shared local features.

    Without local features, more of the nearest are candidates.
    """
    count = len(x_UD)
    if count < 2:
        return []
    most = PROPOSED if shared_P2 is not None else ALONE
    if count > MANY and find_spec("faiss") is not None:
        near_UK = nearest_of_all(x_UD, 1 + most)[1]
        hashed_P2 = alike_hashes(hash_TUB, HASH)
    else:
        near_UK = nearest(x_UD, x_UD, min(count, 1 + most))[1].cpu().numpy()
        said_U = hash_TUB[0].abs().amax(dim=1).cpu().numpy() > 0
        hashed_P2 = np.concatenate([_alike(hash_TUB[0], each_UB) for each_UB in hash_TUB])
        hashed_P2 = hashed_P2[said_U[hashed_P2].all(axis=1)]
    near_P2 = np.stack([np.arange(count).repeat(near_UK.shape[1]), near_UK.ravel()], axis=1)
    known_U = x_UD.abs().amax(dim=1).cpu().numpy() > 0
    near_P2 = near_P2[(near_P2[:, 1] >= 0) & known_U[near_P2].all(axis=1)]
    shared_P2 = np.zeros((0, 2), int) if shared_P2 is None else shared_P2
    pairs_P2 = np.sort(np.concatenate([near_P2, hashed_P2, shared_P2]), axis=1)
    pairs_P2 = np.unique(pairs_P2[pairs_P2[:, 0] != pairs_P2[:, 1]], axis=0)
    # Sorted so that pairs that share an image follow each other: few images stay in memory.
    links = _links(pairs_P2, count).tocsr()
    place_U = np.argsort(reverse_cuthill_mckee(links + links.T, symmetric_mode=True))
    order_P = np.lexsort(np.sort(place_U[pairs_P2], axis=1).T[::-1])
    return [(one, other) for one, other in pairs_P2[order_P].tolist()]


def _links(pairs_P2: np.ndarray, count: int) -> coo_array:
    """Pairs as a graph of `count` images."""
    return coo_array((np.ones(len(pairs_P2)), (pairs_P2[:, 0], pairs_P2[:, 1])), (count, count))


def _alike(hash_UB: Tensor, other_UB: Tensor) -> np.ndarray:
    """Pairs (P, 2) of each image and its nearest hashes within `HASHED` bits."""
    similarity_UK, at_UK = nearest(hash_UB, other_UB, min(len(hash_UB), 1 + ALONE))
    near_UK = similarity_UK >= 1 - 2 * HASHED / hash_UB.shape[1]
    of_P, k_P = near_UK.nonzero(as_tuple=True)
    return torch.stack([of_P, at_UK[of_P, k_P]], dim=1).cpu().numpy()


def first_copies(canvases: CanvasSet) -> np.ndarray:
    """Position of the first copy (by pixels or hash) of each image, or its own: (N,).

    Features are not used, as those of a weak encoder would merge images that are merely similar.
    """
    _, distinct_U, of_N = _distinct(canvases)
    hash_UB = torch.from_numpy(canvases.hashes_N8B[distinct_U, 0].astype(np.float32))
    return distinct_U[grouped(hash_UB, 1 - (2 * HASH + 1) / hash_UB.shape[1])][of_N]


def _distinct(canvases: CanvasSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First image with equal pixels (N,); these first images (U,); index of each among them."""
    first = dict[bytes, int]()
    first_N = np.array(
        [first.setdefault(each, at) for at, each in enumerate(canvases.pixel_digests)]
    )
    return first_N, *np.unique(first_N, return_inverse=True)


def neighbour_mean(nearest_NK: Tensor, margin: float) -> Tensor:
    """Mean cosine of each image to its `OTHERS` nearest non-copies, (N,).

    `nearest_NK` are the cosines of the nearest images, itself included.

    Its copies are the largest number of nearest images, up to `COPIES`, that all exceed the mean
    of the `OTHERS` after them by `CLEAR` margins; without copies, the nearest image is skipped.
    """
    cosine_NK = nearest_NK[:, 1 : 1 + COPIES + OTHERS]  # the first is itself or an equal image
    after_NM = cosine_NK[:, 1:].unfold(1, OTHERS, 1).mean(dim=2)
    clear_NM = cosine_NK[:, :COPIES] - after_NM > CLEAR * margin
    last_N = (clear_NM * torch.arange(COPIES, device=cosine_NK.device)).amax(dim=1)
    return after_NM.gather(1, last_N[:, None]).squeeze(1)


def grouped(
    x_ND: Tensor,
    above: float,
    margin: float | None = None,
    apart: Collection[tuple[int, int]] = (),
    joined_N: np.ndarray | None = None,
) -> np.ndarray:
    """Group similar images; returns the first image of each image's group.

    In the order of the set, each ungrouped image starts a group with all later ungrouped images
    similar to it, so all images of a group are similar to its first.

    Two images are similar if their cosine exceeds `above`, unless the pair is in `apart`. Among
    `FEWEST` images or more they are also similar if their cosine exceeds the mean of their two
    `neighbour_mean` by `margin` (cross-domain similarity local scaling). `joined_N` has the first
    image of each existing group, which merges with others as its first image does.

    Reference:
        Conneau et al., Word Translation Without Parallel Data, ICLR 2018, for the scaling.
    """
    first_N = np.arange(len(x_ND)) if joined_N is None else joined_N.copy()
    scaled = None if len(x_ND) < FEWEST else margin
    by_index, many = find_spec("faiss") is not None, len(x_ND) > MANY
    if many and not by_index:
        _log.warning("%d images: comparing all pairs, which is slow; install faiss-cpu to use an "
                     "index", len(x_ND))  # fmt: skip
    ways = _proposed if many and by_index else _compared
    for image, near_P in ways(x_ND, above, scaled):
        if first_N[image] == image:
            free_P = near_P[(near_P > image) & (first_N[near_P] == near_P)]
            joining = [at for at in free_P.tolist() if (image, at) not in apart]
            first_N[np.isin(first_N, joining)] = image
    return first_N


Pairs = Iterator[tuple[int, np.ndarray]]  # images in order, and the images similar to each (P,)


def _compared(x_ND: Tensor, above: float, margin: float | None) -> Pairs:
    """Similar images by comparing all pairs; yields an image once per block."""
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
        for row in near_RC.any(dim=1).nonzero().flatten().tolist():
            yield top + row, left + near_RC[row].nonzero().flatten().cpu().numpy()


def _proposed(x_ND: Tensor, above: float, margin: float | None) -> Pairs:
    """Like `_compared`, but only among the `NEAREST` of each image."""
    cosine_NK, position_NK = nearest_of_all(x_ND, NEAREST)
    near_NK = cosine_NK > above
    if margin is not None:
        least_N = (neighbour_mean(torch.from_numpy(cosine_NK), margin).numpy() + margin) / 2
        near_NK |= cosine_NK > least_N[:, None] + least_N[position_NK]
    of_P, k_P = np.nonzero(near_NK & (position_NK >= 0))
    pairs_P2 = np.sort(np.stack([of_P, position_NK[of_P, k_P]], axis=1), axis=1)
    pairs_P2 = np.unique(pairs_P2[pairs_P2[:, 0] != pairs_P2[:, 1]], axis=0)
    first_M, start_M = np.unique(pairs_P2[:, 0], return_index=True)
    yield from zip(first_M.tolist(), np.split(pairs_P2[:, 1], start_M[1:]), strict=False)
