"""What a page needs to rank photos under any choice of properties, rounded to integers.

To ignore properties, the page solves a linear system for the query; what would take longer is in
tables. N photos, F features of all stages, R axes, M rows of factors, J axes of a match, Q queries.
A choice is a number: bit i is set if property i is ignored (or matched).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mast.augment import OPERATORS
from mast.invariance.subspaces import RIDGE, Subspaces

AXES = 1152
LARGEST = {torch.int8: 127, torch.int16: 32_767}
FINE = 640_000  # numbers of the leading axes that have two bytes
ON_MAP = 1000  # photos
QUERIES, NEAREST = 64, 10  # by which the page is compared with exact features


class Rounded(NamedTuple):
    """Rows of integers, and what each row is multiplied by."""

    values: Tensor
    scale: Tensor

    @property
    def restored(self) -> Tensor:
        """The numbers, nearly."""
        return self.values * self.scale[:, None]


class Property(NamedTuple):
    """What the operators of a property do to features."""

    factor: Rounded  # (M, R); its squared product is the second moment of the displacements
    floor: float  # what it adds to the ridge


class Reduced(NamedTuple):
    """The features of a set, and what each choice does to them.

    Attributes:
        features: Centered and scaled features (R, N): the leading axes in two bytes, the others in
            one.
        properties: By name; their order gives the bits of a choice.
        lengths: Of all features (N,), by what is ignored.
        maps: By what is matched, from choice 1: the axes (J, R) that are compared.
        places: Of photos on a map (N', 2), from 0 to 1: by what is ignored, then by what is
            matched, from choice 1.
        every: The map shows every n-th photo.
        agreement: Share of the ten nearest photos that are the same by exact features, over all
            choices.
    """

    features: tuple[Rounded, Rounded]
    properties: Mapping[str, Property]
    lengths: Sequence[Tensor]
    maps: Sequence[Rounded]
    places: Sequence[Tensor]
    every: int
    agreement: float


def reduced(features_NF: Tensor, subspaces: Subspaces, axes: int = AXES) -> Reduced:
    """Reduce features to the axes that matter most to distances, whatever is ignored.

    They are the leading axes of a sum of second moments, each with a trace of one: of the
    displacements of each property; of the features as they are, without each property and without
    all; and, with a weight of 0.1, of the axes of each match.
    """
    level_NF = (features_NF.float() - subspaces.mean_F) / subspaces.scale_F
    names = {of: [name for name in subspaces.factors if OPERATORS[name].changes == of]
             for of in subspaces.properties}  # fmt: skip
    moves = {of: torch.cat([subspaces.factors[name] for name in each])
             for of, each in names.items()}  # fmt: skip
    choices = [
        [name for i, each in enumerate(names.values()) if choice >> i & 1 for name in each]
        for choice in range(2 ** len(names))
    ]
    few = {0, len(choices) - 1, *(2**i for i in range(len(names)))}
    asked_Q = torch.linspace(0, len(level_NF) - 1, min(QUERIES, len(level_NF))).long()
    every = -(-len(level_NF) // ON_MAP)
    moment_FF = sum(map(_moment, moves.values()), torch.zeros(()))
    lengths, matched, places, exact = [], [], list[Tensor](), []
    for choice, ignored in enumerate(choices):
        moved_NF = subspaces.ignoring(ignored).moved(level_NF)
        if choice in few:
            moment_FF = moment_FF + _moment(moved_NF)
        lengths.append(moved_NF.norm(dim=1))
        exact.append(_near(moved_NF, asked_Q))
        places.append(_places(moved_NF[::every], places[:1]))
    for operators in choices[1:]:
        space = subspaces.matching(operators)
        assert space.kept_JF is not None
        shrunk_JM = space.kept_JF @ space.axes_MF.T * space.shrink_M
        matched.append(space.kept_JF - shrunk_JM @ space.axes_MF)
        moment_FF = moment_FF + _moment(matched[-1]) / 10
        moved_NJ = level_NF @ matched[-1].T
        exact.append(_near(moved_NJ, asked_Q))
        places.append(_places(moved_NJ[::every], places[:1]))
    axes_FR = torch.linalg.eigh(moment_FF.double())[1].flip(1)[:, :axes].float()
    along_RN = (level_NF @ axes_FR).T
    fine = FINE // len(level_NF)
    page = Reduced(
        (_rounded(along_RN[:fine], torch.int16), _rounded(along_RN[fine:])),
        {of: Property(_rounded(each_MF @ axes_FR), RIDGE * float(each_MF.square().mean(1).sum()))
         for of, each_MF in moves.items()},
        lengths, [_rounded(each_JF @ axes_FR) for each_JF in matched], places, every, 1.0,
    )  # fmt: skip
    near = _page_finds(page, asked_Q)
    share = [len({*one} & {*other}) / len(one) for of, page_of in zip(exact, near, strict=True)
             for one, other in zip(of, page_of, strict=True)]  # fmt: skip
    return page._replace(agreement=sum(share) / len(share))


def _page_finds(page: Reduced, asked_Q: Tensor) -> list[list[list[int]]]:
    """The nearest photos of some under each choice, by the page's numbers."""
    along_RN = torch.cat([each.restored for each in page.features])
    floor = [each.floor for each in page.properties.values()]
    rows = [each.factor.restored.double() for each in page.properties.values()]
    moment_RR = [each_MR.T @ each_MR for each_MR in rows]
    found = []
    for choice, length_N in enumerate(page.lengths):
        bits = [i for i in range(len(floor)) if choice >> i & 1]
        left_RQ = along_RN[:, asked_Q]
        if bits:
            ridge = sum(floor[i] for i in bits)
            system_RR = sum(moment_RR[i] for i in bits) + ridge * torch.eye(len(along_RN))
            left_RQ = ridge * torch.linalg.solve(system_RR, left_RQ.double()).float()
        found.append(_top(left_RQ.T @ along_RN / length_N, asked_Q))
    for each in page.maps:
        found.append(_near((each.restored @ along_RN).T, asked_Q))
    return found


def _near(moved_NJ: Tensor, asked_Q: Tensor) -> list[list[int]]:
    unit_NJ = normalize(moved_NJ, dim=1)
    return _top(unit_NJ[asked_Q] @ unit_NJ.T, asked_Q)


def _top(similar_QN: Tensor, asked_Q: Tensor) -> list[list[int]]:
    """Positions of the nearest photos, without the queries themselves."""
    similar_QN[torch.arange(len(asked_Q)), asked_Q] = -torch.inf
    return similar_QN.topk(min(NEAREST, similar_QN.shape[1] - 1)).indices.tolist()


def _places(moved_NJ: Tensor, before: Sequence[Tensor]) -> Tensor:
    """Where the directions of photos lie along their two leading axes, turned to earlier places."""
    torch.manual_seed(0)
    left_NK, size_K, _ = torch.pca_lowrank(normalize(moved_NJ, dim=1), 6, niter=4)
    place_N2 = left_NK[:, :2] * size_K[:2]
    for earlier_N2 in before:
        left_22, _, right_22 = torch.linalg.svd(place_N2.T @ (earlier_N2 - 0.5))
        place_N2 = place_N2 @ (left_22 @ right_22)
    low_2, high_2 = place_N2.quantile(torch.tensor([0.01, 0.99]), dim=0)
    return ((place_N2 - low_2) / (high_2 - low_2).clamp(min=1e-12)).clamp(0, 1)


def _moment(rows_MF: Tensor) -> Tensor:
    return rows_MF.T @ rows_MF / rows_MF.square().sum().clamp(min=1e-12)


def _rounded(rows: Tensor, dtype: torch.dtype = torch.int8) -> Rounded:
    scale = rows.abs().amax(dim=1).clamp(min=1e-12) / LARGEST[dtype]
    return Rounded((rows / scale[:, None]).round().to(dtype), scale)
