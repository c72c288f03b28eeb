"""Masks: their starts and kinds, the scale of a column, and the figures that a run logs.

Shapes: D embedding dimensions, K operators.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.core.errors import UserError
from mast.models.masks import ExemptBlocks, Masks, blocks

D, K = 3000, 6


def fixed(rows: list[list[float]], **options) -> Masks:
    """Masks of given logits."""
    logits_DK = torch.tensor(rows)
    masks = Masks(*logits_DK.shape, **options)
    with torch.no_grad():
        masks.logits_DK.copy_(logits_DK)
    return masks


@settings(max_examples=25)
@given(dim=st.integers(1, 200), count=st.integers(1, 40))
def test_blocks_partition_the_dimensions(dim, count):
    mask_DK = blocks(dim, count)
    assert mask_DK.shape == (dim, count)
    assert (mask_DK.sum(dim=1) == 1).all()  # disjoint and complete
    assert set(mask_DK.unique().tolist()) <= {0.0, 1.0}
    sizes_K = mask_DK.sum(dim=0)
    assert sizes_K.max() - sizes_K.min() <= 1
    owner_D = mask_DK.argmax(dim=1)
    assert (owner_D.diff() >= 0).all()  # contiguous, in the order of the operators


# The mean of high and of low logits, and the deviation of the high: N(1, .1) and N(.2, .1) add.
@pytest.mark.parametrize(("printed", "high", "std"), [(True, 1.2, 0.02**0.5), (False, 1.0, 0.1)])
def test_starts(printed, high, std):
    logits_DK = Masks(D, K, printed=printed).logits_DK.detach()
    high_DK = blocks(D, K).bool()
    if not printed:
        high_DK = torch.ones(D, K, dtype=torch.bool)
        high_DK[3 * D // 4 :] = ~blocks(D - 3 * D // 4, K).bool()
    assert logits_DK[high_DK].mean().item() == pytest.approx(high, abs=0.01)
    assert logits_DK[~high_DK].mean().item() == pytest.approx(0.2, abs=0.01)
    assert logits_DK[high_DK].std().item() == pytest.approx(std, abs=0.01)


def test_kinds():
    learned, handcrafted, none = (Masks(40, 4, kind) for kind in ("learned", "handcrafted", "none"))
    assert [name for name, _ in learned.named_parameters()] == ["logits_DK"]
    assert list(handcrafted.parameters()) == list(none.parameters()) == []
    assert "logits_DK" in handcrafted.state_dict()
    assert torch.equal(handcrafted(), 2 * blocks(40, 4))
    assert torch.equal(none(), torch.ones(40, 4))


def test_normalisation():
    rows = [[3.0, -1.0], [4.0, 2.0], [0.0, 2.0], [-7.0, 0.0]]
    assert torch.equal(fixed(rows, printed=True)().T[0], torch.tensor([3.0, 4.0, 0.0, 0.0]))
    l2_DK = fixed(rows)()
    torch.testing.assert_close(l2_DK[:, 0], torch.tensor([1.2, 1.6, 0.0, 0.0]))  # norm sqrt(4)
    torch.testing.assert_close(l2_DK.norm(dim=0), torch.full((2,), 2.0))


@pytest.mark.parametrize("printed", [True, False])
def test_dead_column_is_finite(printed):
    masks = fixed([[-1.0, 1.0], [-2.0, 1.0]], printed=printed)
    masks().sum().backward()
    assert torch.isfinite(masks()).all()
    assert torch.isfinite(masks.logits_DK.grad).all()


def test_statistics_by_hand():
    statistics = fixed([[1.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]).statistics()
    assert statistics["mean"] == pytest.approx(3 / 8)
    assert statistics["zero"] == pytest.approx(5 / 8)
    assert statistics["cosine"] == pytest.approx(1 / 2**0.5)
    assert statistics["active_share"] == pytest.approx((2 / 4 + 1 / 4) / 2)


# ------------------------------------------------------------------------------- exempt blocks


def test_a_group_shares_a_block_and_the_others_have_none():
    mask_DK = ExemptBlocks(20, [0, None, 1, 0], share=0.1)()
    expected_DK = torch.ones(20, 4)
    expected_DK[0:2, 0] = expected_DK[0:2, 3] = 0.0
    expected_DK[2:4, 2] = 0.0
    assert torch.equal(mask_DK, expected_DK)


@pytest.mark.parametrize(("share", "size"), [(0.001, 0), (0.5, 10), (0.6, 12)])
def test_a_share_that_does_not_fit(share, size):
    with pytest.raises(UserError, match=f"of 20 dimensions is {size} for each of 2 groups"):
        ExemptBlocks(20, [0, 1], share=share)
