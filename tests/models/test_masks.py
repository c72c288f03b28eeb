"""Masks: their starts and kinds, the scale of a column, and the figures that a run logs.

Shapes: D embedding dimensions, K operators.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.core.errors import UserError
from mast.models import ExemptBlocks, Masks
from mast.models.masks import blocks, budgeted

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
@pytest.mark.parametrize(
    ("start", "high", "std"), [("block", 1.2, 0.02**0.5), ("leave_one_out", 1.0, 0.1)]
)
def test_starts(start, high, std):
    logits_DK = Masks(D, K, start=start).logits_DK.detach()
    high_DK = blocks(D, K).bool()
    if start == "leave_one_out":
        high_DK = torch.ones(D, K, dtype=torch.bool)
        high_DK[3 * D // 4 :] = ~blocks(D - 3 * D // 4, K).bool()
    assert logits_DK[high_DK].mean().item() == pytest.approx(high, abs=0.01)
    assert logits_DK[~high_DK].mean().item() == pytest.approx(0.2, abs=0.01)
    assert logits_DK[high_DK].std().item() == pytest.approx(std, abs=0.01)


@pytest.mark.parametrize("start", ["block", "leave_one_out"])
def test_start_is_a_function_of_the_seed(start):
    first, same, other = (Masks(40, 4, start=start, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.logits_DK, same.logits_DK)
    assert not torch.equal(first.logits_DK, other.logits_DK)
    state = torch.get_rng_state()
    Masks(40, 4, start=start)
    assert torch.equal(torch.get_rng_state(), state)  # no hidden global draw


def test_kinds():
    learned, handcrafted, none = (Masks(40, 4, kind) for kind in ("learned", "handcrafted", "none"))
    assert [name for name, _ in learned.named_parameters()] == ["logits_DK"]
    assert list(handcrafted.parameters()) == list(none.parameters()) == []
    assert "logits_DK" in handcrafted.state_dict()
    assert torch.equal(handcrafted(), blocks(40, 4))
    assert torch.equal(none(), torch.ones(40, 4))


def test_normalisation():
    rows = [[3.0, -1.0], [4.0, 2.0], [0.0, 2.0], [-7.0, 0.0]]
    assert torch.equal(fixed(rows)().T[0], torch.tensor([3.0, 4.0, 0.0, 0.0]))
    l2_DK = fixed(rows, normalize="l2")()
    torch.testing.assert_close(l2_DK[:, 0], torch.tensor([1.2, 1.6, 0.0, 0.0]))  # norm sqrt(4)
    torch.testing.assert_close(l2_DK.norm(dim=0), torch.full((2,), 2.0))


@pytest.mark.parametrize("normalize", ["none", "l2"])
def test_dead_column_is_finite(normalize):
    masks = fixed([[-1.0, 1.0], [-2.0, 1.0]], normalize=normalize)
    masks().sum().backward()
    assert torch.isfinite(masks()).all()
    assert torch.isfinite(masks.logits_DK.grad).all()


def test_statistics_by_hand():
    statistics = fixed([[1.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]).statistics()
    assert statistics["mean"] == pytest.approx(3 / 8)
    assert statistics["zero"] == pytest.approx(5 / 8)
    assert statistics["cosine"] == pytest.approx(1 / 2**0.5)
    assert statistics["active_share"] == pytest.approx((2 / 4 + 1 / 4) / 2)


def test_more_masks_than_dimensions():
    with pytest.raises(UserError, match="5 masks need at least 5 embedding dimensions, got 4"):
        Masks(4, 5)


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


@settings(max_examples=25)
@given(
    dim=st.integers(2, 300),
    share=st.floats(0.01, 0.99),
    temperature=st.floats(0.05, 5.0),
    scale=st.floats(0.0, 20.0),
    seed=st.integers(0, 99),
)
def test_a_budget_is_kept(dim, share, temperature, scale, seed):
    logits_DG = scale * torch.randn(dim, 3, generator=torch.Generator().manual_seed(seed))
    part_DG = budgeted(logits_DG, share, temperature)
    torch.testing.assert_close(part_DG.mean(dim=0), torch.full((3,), share), rtol=1e-2, atol=1e-3)
    for column in range(3):  # larger logits, larger parts
        ordered_D = part_DG[logits_DG[:, column].argsort(), column]
        assert (ordered_D.diff() > -1e-6).all()


def test_a_budget_has_the_gradient_of_the_implicit_function():
    """Against central differences of a threshold that SciPy finds to the last bit."""
    from scipy.optimize import brentq

    share, temperature = 0.2, 0.3
    logits_D1 = torch.randn(12, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    weight_D1 = torch.randn(12, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(4))

    def value(logits: torch.Tensor) -> float:
        def excess(tau: float) -> float:
            return float((logits / temperature - tau).sigmoid().mean()) - share

        tau = brentq(excess, -100.0, 100.0, xtol=1e-14)
        return float((weight_D1 * (logits / temperature - tau).sigmoid()).sum())

    learned_D1 = logits_D1.clone().requires_grad_()
    (weight_D1 * budgeted(learned_D1, share, temperature)).sum().backward()
    step = 1e-5
    for index in range(12):
        moved = torch.zeros_like(logits_D1)
        moved[index] = step
        slope = (value(logits_D1 + moved) - value(logits_D1 - moved)) / (2 * step)
        assert learned_D1.grad[index].item() == pytest.approx(slope, abs=1e-4)
    # Nothing is gained by moving all logits together: the budget is the same.
    assert learned_D1.grad.sum().item() == pytest.approx(0.0, abs=1e-9)
