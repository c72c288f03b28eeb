"""Subspaces of displacements that are known; `test_closed_form.py` has the full matrices."""

import pytest
import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.invariance.subspaces import Subspaces

WIDTHS = (6, 10)


def gaussian(n: int, seed: int, dim: int = 16) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("scale", [1e-25, 1e-13, 1e12])
def test_the_scale_of_a_depth_does_not_count(scale: float) -> None:
    features_NF, moved_NF = gaussian(40, 0), gaussian(40, 1)
    expected, scaled = (
        Subspaces.of(by_F * features_NF, {"rotate": by_F * (features_NF + moved_NF)}, WIDTHS)
        for by_F in (torch.ones(16), torch.tensor([1.0] * 6 + [scale] * 10))
    )
    by_F = torch.tensor([1.0] * 6 + [scale] * 10)
    for names in ([], ["rotate"]):
        found_NF = scaled.ignoring(names)(by_F * features_NF)
        torch.testing.assert_close(
            found_NF, expected.ignoring(names)(features_NF), rtol=1e-3, atol=1e-4
        )


@pytest.fixture
def known() -> tuple[Tensor, dict[str, Tensor], Subspaces]:
    """Features of 40 images; color moves along 0 and 1, turning along 7, blur along all a bit."""
    features_NF = gaussian(40, 0)
    axes = {"color_jitter": [0, 1], "grayscale": [1], "rotate": [7], "gaussian_blur": [*range(16)]}
    size = {"gaussian_blur": 0.1}
    changed = {}
    for seed, (name, places) in enumerate(axes.items(), start=1):
        moved_NF = torch.zeros_like(features_NF)
        moved_NF[:, places] = gaussian(40, seed, len(places)) * size.get(name, 3.0)
        changed[name] = features_NF + moved_NF
    return features_NF, changed, Subspaces.of(features_NF, changed, WIDTHS)


def test_what_cannot_be_chosen_is_named(known: tuple[Tensor, dict[str, Tensor], Subspaces]) -> None:
    features_NF, changed, subspaces = known
    with pytest.raises(UserError, match="invert was not measured"):
        subspaces.ignoring(["invert"])
    with pytest.raises(UserError, match="rotate is in both"):
        subspaces.matching(["rotate"], ["rotate"])
    still = Subspaces.of(features_NF, {**changed, "invert": features_NF}, WIDTHS)
    assert list(still.factors) == [*changed]  # what moves nothing is left out


def test_the_parts_of_a_distance_add_up_and_weights_multiply_them(
    known: tuple[Tensor, dict[str, Tensor], Subspaces],
) -> None:
    features_NF, _, subspaces = known
    level = subspaces.ignoring(())
    difference_NF = features_NF - features_NF.roll(1, dims=0)
    parts_NK = subspaces.parts(difference_NF)
    torch.testing.assert_close(
        parts_NK.sum(dim=1), level.moved(difference_NF / subspaces.scale_F).square().sum(dim=1)
    )
    names = (*subspaces.properties, "rest")
    assert names == ("color", "focus", "orientation", "rest")
    weights = {"color": 0.2, "focus": 1.0, "orientation": 3.0, "rest": 0.5}
    seen_NF = subspaces.weighted(weights).moved(difference_NF / subspaces.scale_F)
    ratio_N = seen_NF.square().sum(dim=1) / (parts_NK @ torch.tensor([*weights.values()]))
    torch.testing.assert_close(ratio_N, ratio_N[:1].expand(len(ratio_N)), rtol=1e-3, atol=0)
    # To weight everything but the rest by 0 is to ignore all operators.
    none = dict.fromkeys(names, 0.0) | {"rest": 1.0}
    all_ignored = subspaces.ignoring(list(subspaces.factors))
    torch.testing.assert_close(
        subspaces.weighted(none)(features_NF).norm(dim=1), all_ignored(features_NF).norm(dim=1),
        atol=1e-4, rtol=1e-3,
    )  # fmt: skip
