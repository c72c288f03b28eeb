"""Masks: blocks, starts, normalisation, statistics.

Legend: D embedding dimensions, K operators.
"""

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.core.errors import UserError
from mast.models import Masks
from mast.models.masks import MaskNorm, MaskStart, blocks

D, K = 400, 4


def learned(values_DK: list[list[float]], normalize: MaskNorm = "none") -> Masks:
    """Masks with the given logits."""
    logits_DK = torch.tensor(values_DK)
    masks = Masks(*logits_DK.shape, normalize=normalize)
    with torch.no_grad():
        masks.logits_DK.copy_(logits_DK)
    return masks


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_blocks_are_a_partition(data: st.DataObject) -> None:
    dim = data.draw(st.integers(1, 120))
    count = data.draw(st.integers(1, dim))
    mask_DK = blocks(dim, count)
    assert mask_DK.shape == (dim, count)
    assert torch.equal(mask_DK.sum(dim=1), torch.ones(dim))
    size_K = mask_DK.sum(dim=0)
    assert size_K.min() >= 1
    assert size_K.max() - size_K.min() <= 1
    # Consecutive: the operator of a dimension never goes down.
    assert (mask_DK.argmax(dim=1).diff() >= 0).all()


def test_block_start_is_high_on_its_block() -> None:
    masks = Masks(D, K)
    own_DK = blocks(D, K).bool()
    inside, outside = masks.logits_DK[own_DK], masks.logits_DK[~own_DK]
    assert inside.mean().item() == pytest.approx(1.2, abs=0.03)
    assert inside.std().item() == pytest.approx(0.1 * 2**0.5, abs=0.02)
    assert outside.mean().item() == pytest.approx(0.2, abs=0.02)
    assert outside.std().item() == pytest.approx(0.1, abs=0.02)


def test_shared_start_is_low_on_its_block() -> None:
    masks = Masks(D, K, start="shared")
    own_DK = blocks(D, K).bool()
    assert masks.logits_DK[own_DK].mean().item() == pytest.approx(0.2, abs=0.03)
    assert masks.logits_DK[~own_DK].mean().item() == pytest.approx(1.0, abs=0.02)
    assert masks.logits_DK[~own_DK].std().item() == pytest.approx(0.1, abs=0.02)


def test_bell_start_peaks_in_the_middle_of_its_block() -> None:
    logits_DK = Masks(D, K, start="bell").logits_DK
    width = D // K
    for column in range(K):
        centre = column * width + width // 2
        assert logits_DK[centre - 5 : centre + 5, column].mean() > 1.1
        edge = logits_DK[column * width : column * width + 5, column].mean().item()
        assert edge == pytest.approx(0.2 + 2.718281828**-0.5, abs=0.15)
    assert logits_DK[2 * width :, 0].mean().item() == pytest.approx(0.2, abs=0.03)


def test_constant_start_is_ones() -> None:
    assert torch.equal(Masks(6, 3, start="constant")(), torch.ones(6, 3))


@pytest.mark.parametrize("start", get_args(MaskStart))
def test_learned_masks_are_trained_non_negative_and_seeded(start: MaskStart) -> None:
    masks = Masks(12, 3, start=start, seed=1)
    assert [name for name, _ in masks.named_parameters()] == ["logits_DK"]
    assert (masks() >= 0).all()
    assert torch.equal(masks(), Masks(12, 3, start=start, seed=1)())
    if start != "constant":
        assert not torch.equal(masks(), Masks(12, 3, start=start, seed=2)())


def test_a_start_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    Masks(12, 3)
    assert torch.equal(torch.get_rng_state(), state)


def test_fixed_kinds_have_no_parameters_and_are_saved() -> None:
    for kind, expected_DK in (("handcrafted", blocks(10, 3)), ("none", torch.ones(10, 3))):
        masks = Masks(10, 3, kind=kind)  # type: ignore[arg-type]
        assert list(masks.parameters()) == []
        assert list(masks.state_dict()) == ["logits_DK"]
        assert torch.equal(masks(), expected_DK)


def test_l2_gives_norm_root_d_and_mean_gives_mean_one() -> None:
    torch.testing.assert_close(
        Masks(20, 3, normalize="l2")().norm(dim=0), torch.full((3,), 20**0.5)
    )
    torch.testing.assert_close(Masks(20, 3, normalize="mean")().mean(dim=0), torch.ones(3))
    values_DK = [[3.0, 1.0], [4.0, -1.0]]
    torch.testing.assert_close(
        learned(values_DK, "l2")(), torch.tensor([[0.6, 1.0], [0.8, 0.0]]) * 2**0.5
    )
    torch.testing.assert_close(
        learned(values_DK, "mean")(), torch.tensor([[6 / 7, 2.0], [8 / 7, 0.0]])
    )
    assert torch.equal(learned(values_DK)(), torch.tensor([[3.0, 1.0], [4.0, 0.0]]))


@pytest.mark.parametrize("normalize", get_args(MaskNorm))
def test_a_dead_mask_stays_zero_with_finite_gradients(normalize: MaskNorm) -> None:
    masks = learned([[-1.0, 1.0], [0.0, 2.0]], normalize)
    mask_DK = masks()
    assert mask_DK[:, 0].eq(0).all()
    mask_DK.square().sum().backward()
    assert masks.logits_DK.grad is not None
    assert masks.logits_DK.grad.isfinite().all()


def test_statistics_by_hand() -> None:
    statistics = learned([[1.0, 0.0], [1.0, 3.0], [-2.0, 4.0], [0.0, 0.0]]).statistics()
    assert statistics.mean == pytest.approx(9 / 8)
    assert statistics.zero == pytest.approx(4 / 8)
    assert statistics.cosine == pytest.approx(3 / (2**0.5 * 5))
    assert statistics.active_share == pytest.approx((4 / (4 * 2) + 49 / (4 * 25)) / 2)


def test_statistics_of_blocks_of_one_mask_and_of_dead_masks() -> None:
    disjoint = Masks(12, 3, kind="handcrafted").statistics()
    assert (disjoint.cosine, disjoint.active_share) == pytest.approx((0.0, 1 / 3))
    assert Masks(12, 1).statistics().cosine == pytest.approx(0.0)
    assert Masks(12, 3, kind="none").statistics().cosine == pytest.approx(1.0)
    dead = learned([[-1.0, 0.0], [-1.0, 0.0]]).statistics()
    assert (dead.mean, dead.zero, dead.cosine, dead.active_share) == (0.0, 1.0, 0.0, 0.0)


def test_more_masks_than_dimensions_are_refused() -> None:
    Masks(5, 5)
    with pytest.raises(UserError, match="6 masks need at least 6 embedding dimensions, got 5"):
        Masks(5, 6)
