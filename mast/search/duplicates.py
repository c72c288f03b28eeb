"""Images of a set that are there twice: exact copies by pixels, near-copies by features and hashes.

N images of a set, U of them with different pixels, D dimensions, P pairs or copies, K nearest, M
images that are hashed, T ways to turn them, B bits of a hash, R rows and C columns of a block of
cosines.
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

MARGIN = 0.2  # by which copies stand out where something is ignored; docs/log.md
FEW = 50  # images below which it is wider: half the wrong copies, a fifth fewer right ones
WIDE = 0.3
SAME = 0.95  # cosine of similar images there, however many there are
COPIES = 5  # of an image, at most, that are left out of its `neighbour_mean`
CLEAR = 1.0  # margins by which several copies stand out; docs/log.md
OTHERS = 3  # nearest after these, which do
MANY, NEAREST = 200_000, 32  # images above which an index has so many for each
PROPOSED, ALONE = 3, 5  # of an image's nearest that may be edits of it, with words and without
WORDED = 50_000  # images up to which all pairs are compared by words; docs/log.md
RESIZED = 0.95  # times as many pixels across, from which it is said
HASH, HASHED = 4, 10  # of 64 bits, up to which hashes of copies, and of what may be edits, differ
_log = logging.getLogger("mast")


class Copy(NamedTuple):
    """An image of a group of copies."""

    group: int  # its number, from 1, in the order of the set
    position: int
    level: str  # "first" of its group; else exact, near, edited or similar
    cosine: float  # of its features and those of the first
    agreement: float = 1.0  # with the first under a map; NaN where they were not compared
    changes: str = ""  # what differs from the first, in words
    shows_more: bool = False  # than the first

    @property
    def is_flat(self) -> bool:
        """Whether it has too little detail to be verified: features or hashes alone agree."""
        return self.level == "near" and math.isnan(self.agreement)


def copies_within(
    canvases: CanvasSet,
    features_ND: Tensor,
    level: str = "edited",
    above: float | None = None,
    not_copies: Collection[tuple[int, int]] = (),
    fixed: Collection[str] = (),
    strict: Collection[str] = (),
) -> list[Copy]:
    """The images that are there more than once: those of each group, all copies of its first.

    Args:
        canvases: The set; exact copies are found by canvases, whatever the format of their files.
        features_ND: Their features, which propose edits.
        level: exact, near, edited or similar: how far to go.
        above: Cosine of similar images, where features are compared as they are; by default they
            are standardised by the distinct images, and it is 0.99.
        not_copies: Pairs of positions that are no copies, in either order.
        fixed: Properties in which copies do not differ but as near copies do.
        strict: Properties in which they do not differ at all.
    """
    first_N, distinct_U, of_N = _distinct(canvases)
    x_UD = features_ND[torch.from_numpy(distinct_U)]
    if above is None:
        (x_UD,), above = standardised(x_UD), NEAR
    apart = {(min(pair), max(pair)) for pair in of_N[np.array([*not_copies], int).reshape(-1, 2)]}
    hash_UTB = torch.from_numpy(canvases.hashes_N8B[distinct_U].astype(np.float32))
    hash_TUB = hash_UTB.transpose(0, 1).to(x_UD.device)
    # The first of several frames says nothing of the others: it is like no other image.
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
    """What differs from the first, in words; at what size it is shown, too."""
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
    """Pairs of the first of a group and another image that is an edit of it.

    Pairs that features or hashes propose are compared, and then all that are connected by edits
    with the first of them. Where pairs are flat, it is features and hashes that say.
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
        # It may be NaN, and smooth images agree by chance.
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
    while open_groups:  # of each the first, and what remains once more
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
    """Pairs of images that may be edits: nearest by features, and those of like hashes.

    Without those that share local features, more of the nearest.
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
    # Pairs that share an image follow each other where they can: few images are held.
    links = _links(pairs_P2, count).tocsr()
    place_U = np.argsort(reverse_cuthill_mckee(links + links.T, symmetric_mode=True))
    order_P = np.lexsort(np.sort(place_U[pairs_P2], axis=1).T[::-1])
    return [(one, other) for one, other in pairs_P2[order_P].tolist()]


def _links(pairs_P2: np.ndarray, count: int) -> coo_array:
    """Pairs of so many images as a graph."""
    return coo_array((np.ones(len(pairs_P2)), (pairs_P2[:, 0], pairs_P2[:, 1])), (count, count))


def _alike(hash_UB: Tensor, other_UB: Tensor) -> np.ndarray:
    """Of each image's hash the nearest others that differ in `HASHED` bits at most: (P, 2)."""
    similarity_UK, at_UK = nearest(hash_UB, other_UB, min(len(hash_UB), 1 + ALONE))
    near_UK = similarity_UK >= 1 - 2 * HASHED / hash_UB.shape[1]
    of_P, k_P = near_UK.nonzero(as_tuple=True)
    return torch.stack([of_P, at_UK[of_P, k_P]], dim=1).cpu().numpy()


def first_copies(canvases: CanvasSet) -> np.ndarray:
    """The position of the first copy of each image by pixels or hash, or its own: (N,).

    Features do not count: those of a bad encoder join images that are merely similar.
    """
    _, distinct_U, of_N = _distinct(canvases)
    hash_UB = torch.from_numpy(canvases.hashes_N8B[distinct_U, 0].astype(np.float32))
    return distinct_U[grouped(hash_UB, 1 - (2 * HASH + 1) / hash_UB.shape[1])][of_N]


def _distinct(canvases: CanvasSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first image with the pixels of each (N,); all of these (U,); of each its place there."""
    first = dict[bytes, int]()
    first_N = np.array(
        [first.setdefault(each, at) for at, each in enumerate(canvases.pixel_digests)]
    )
    return first_N, *np.unique(first_N, return_inverse=True)


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
    joined_N: np.ndarray | None = None,
) -> np.ndarray:
    """The first image of each image's group, to which all others are similar.

    In the order of the set, an image that is in no group yet begins one, with all images after it
    that are similar to it and in no group. So no group has ends that differ.

    Similar are pairs of a cosine `above` this, but those `apart`. By `margin` those are, too, whose
    cosine exceeds by this much the mean of both `neighbour_mean` (cross-domain similarity local
    scaling), among `FEWEST` images or more. `joined_N` has groups that are there already, by their
    first images; they join others with these.

    Reference:
        Conneau et al., Word Translation Without Parallel Data, ICLR 2018, for the scaling.
    """
    first_N = np.arange(len(x_ND)) if joined_N is None else joined_N.copy()
    scaled = None if len(x_ND) < FEWEST else margin
    by_index, many = find_spec("faiss") is not None, len(x_ND) > MANY
    if many and not by_index:
        _log.warning("%d images: all pairs are compared; with faiss-cpu installed an index "
                     "proposes those that may be copies", len(x_ND))  # fmt: skip
    ways = _proposed if many and by_index else _compared
    for image, near_P in ways(x_ND, above, scaled):
        if first_N[image] == image:
            free_P = near_P[(near_P > image) & (first_N[near_P] == near_P)]
            joining = [at for at in free_P.tolist() if (image, at) not in apart]
            first_N[np.isin(first_N, joining)] = image
    return first_N


Pairs = Iterator[tuple[int, np.ndarray]]  # images in their order, and those similar to each (P,)


def _compared(x_ND: Tensor, above: float, margin: float | None) -> Pairs:
    """Similar images by comparing all pairs; an image may come several times."""
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
    """As `_compared`, among the `NEAREST` of each image."""
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
