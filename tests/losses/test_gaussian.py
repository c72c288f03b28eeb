"""Distances of Gaussian embeddings: by hand, against Eq. 4 with the whole B x K x D tensor, memory.

Shapes: B batch, D embedding dimensions, K operators.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mast.losses import joint_distance, masked_distance, subspace_mean, symmetric_kl


def case(batch=4, dim=6, count=3, seed=0, dtype=torch.float64):
    """Squared differences, masks, which are active, and two covariances."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=dtype)

    squared_BD = 2.0 * uniform(batch, dim)
    mask_DK = 0.1 + uniform(dim, count)
    active_BK = uniform(batch, count) < 0.6
    active_BK[0], active_BK[1] = False, True
    return squared_BD, mask_DK, active_BK, 0.2 + uniform(batch, dim), 0.2 + uniform(batch, dim)


# ------------------------------------------------------------------------- masked_distance


def test_masked_distance_by_hand():
    squared_BD = torch.tensor([[1.0, 4.0]])
    mask_DK = torch.tensor([[1.0, 0.0, 0.5], [0.5, 2.0, 0.0]])
    covariance_BD = torch.tensor([[2.0, 1.0]])
    # Numerators sum d m^2: 1 + 4/4 = 2; 16; 1/4.
    expected = {
        None: [2 / 2, 16 / 2, 0.25 / 2],
        "m": [2 * 2 / 2.5, 2 * 16 / 2.0, 2 * 0.25 / 1.0],  # traces 2 + .5; 2; 1
        "m2": [2 * 2 / 2.25, 2 * 16 / 4.0, 2 * 0.25 / 0.5],  # traces 2 + .25; 4; .5
    }
    plain_BK = masked_distance(squared_BD, mask_DK)
    assert plain_BK[0].tolist() == pytest.approx(expected[None])
    for power in ("m", "m2"):
        distance_BK = masked_distance(squared_BD, mask_DK, covariance_BD, power)
        assert distance_BK[0].tolist() == pytest.approx(expected[power], rel=1e-5)


@pytest.mark.parametrize("power", ["m", "m2"])
def test_masked_distance_is_eq_4(power):
    squared_BD, mask_DK, _, first_BD, second_BD = case(5, 7, 3)
    # Eq. 4 before any algebra: masked difference, masked covariances, one pair of subspaces each.
    difference_BKD = squared_BD.sqrt()[:, None] * mask_DK.T[None]
    trace_mask_KD = mask_DK.T if power == "m" else mask_DK.T.square()
    first_BKD = first_BD[:, None] * trace_mask_KD[None]
    second_BKD = second_BD[:, None] * trace_mask_KD[None]
    expected_BK = 2 * difference_BKD.square().sum(-1) / (first_BKD.sum(-1) + second_BKD.sum(-1))
    distance_BK = masked_distance(squared_BD, mask_DK, first_BD + second_BD, power, eps=0.0)
    torch.testing.assert_close(distance_BK, expected_BK, rtol=1e-12, atol=0)


def test_masked_distance_without_uncertainty_is_eq_2():
    squared_BD, mask_DK, *_ = case(5, 7, 3)
    difference_BKD = squared_BD.sqrt()[:, None] * mask_DK.T[None]
    expected_BK = difference_BKD.square().mean(-1)
    torch.testing.assert_close(
        masked_distance(squared_BD, mask_DK), expected_BK, rtol=1e-12, atol=0
    )


@given(scale=st.floats(0.05, 20.0))
@settings(max_examples=20, deadline=None)
def test_scale_of_a_mask(scale):
    # The first trap of Eq. 7: degree 1 in the mask as printed, degree 0 with the mask squared.
    squared_BD, mask_DK, _, first_BD, second_BD = case()
    total_BD = first_BD + second_BD
    for power, degree in (("m", 1), ("m2", 0)):
        scaled_BK = masked_distance(squared_BD, scale * mask_DK, total_BD, power, eps=0.0)
        expected_BK = scale**degree * masked_distance(squared_BD, mask_DK, total_BD, power, eps=0.0)
        torch.testing.assert_close(scaled_BK, expected_BK)


def test_dead_mask_has_a_finite_gradient():
    squared_BD, mask_DK, _, first_BD, second_BD = case()
    mask_DK = torch.zeros_like(mask_DK).requires_grad_()
    distance_BK = masked_distance(squared_BD, mask_DK, first_BD + second_BD)
    distance_BK.sum().backward()
    assert (distance_BK == 0).all()
    assert torch.isfinite(mask_DK.grad).all()


# --------------------------------------------------------------------------- subspace_mean


def test_subspace_mean_by_hand():
    distance_BK = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0], [5.0, 5.0, 5.0]])
    active_BK = torch.tensor([[True, False, True], [False, True, False], [False, False, False]])
    active = subspace_mean(distance_BK, active_BK)
    assert active.item() == pytest.approx((5 / 2 + 16 + 0) / 3)
    everyone = subspace_mean(distance_BK, active_BK, "all")
    assert everyone.item() == pytest.approx((5 / 3 + 16 / 3 + 0) / 3)


@pytest.mark.parametrize("count", ["active", "all"])
def test_subspace_mean_of_parts_is_that_of_the_whole(count):
    distance_BK, active_BK = torch.rand(8, 5), torch.rand(8, 5) < 0.4
    parts = [subspace_mean(distance_BK[s], active_BK[s], count) for s in (slice(4), slice(4, 8))]
    torch.testing.assert_close(sum(parts) / 2, subspace_mean(distance_BK, active_BK, count))


# -------------------------------------------------------------------------- joint_distance


def test_joint_distance_by_hand():
    squared_BD = torch.tensor([[1.0, 4.0, 9.0], [1.0, 4.0, 9.0], [1.0, 4.0, 9.0]]).double()
    mask_DK = torch.tensor([[1.0, 2.0], [2.0, 1.0], [3.0, 0.0]]).double()
    active_BK = torch.tensor([[True, False], [True, True], [False, False]])
    # Weights 1, 4, 9; then 4, 4, 0 in the intersection; the third sample has no operator.
    by_hand = [(1 + 16 + 81) / 14, (4 + 16) / 8, 0.0]
    value = joint_distance(squared_BD, mask_DK, active_BK, eps=1e-12)
    assert value.item() == pytest.approx(sum(by_hand) / 3, rel=1e-9)
    covariance_BD = torch.tensor([[1.0, 2.0, 4.0]]).double().expand(3, 3)
    by_hand = [2 * (1 + 16 + 81) / (1 + 8 + 36), 2 * (4 + 16) / (4 + 8), 0.0]
    value = joint_distance(squared_BD, mask_DK, active_BK, covariance_BD, eps=1e-12)
    assert value.item() == pytest.approx(sum(by_hand) / 3, rel=1e-9)


def test_one_operator_is_the_masked_distance():
    squared_BD, mask_DK, _, first_BD, second_BD = case(6, 8, 3)
    mask_DK = mask_DK / mask_DK.square().mean(dim=0).sqrt()  # L2 norm sqrt(D)
    column_B = torch.tensor([0, 1, 2, 2, 1, 0])
    active_BK = torch.nn.functional.one_hot(column_B, 3).bool()
    total_BD = first_BD + second_BD
    for covariance_BD in (None, total_BD):
        joint = joint_distance(squared_BD, mask_DK, active_BK, covariance_BD, eps=0.0)
        masked_BK = masked_distance(squared_BD, mask_DK, covariance_BD, "m2", eps=0.0)
        torch.testing.assert_close(joint, masked_BK[active_BK].mean(), rtol=1e-12, atol=0)


@given(seed=st.integers(0, 2**31), scale=st.floats(0.05, 20.0))
@settings(max_examples=20, deadline=None)
def test_joint_distance_does_not_see_the_scale_of_a_mask(seed, scale):
    squared_BD, mask_DK, active_BK, first_BD, second_BD = case(seed=seed)
    scale_K = torch.tensor([scale, 1.0, 1.0 / scale]).double()
    for covariance_BD in (None, first_BD + second_BD):
        torch.testing.assert_close(
            joint_distance(squared_BD, mask_DK * scale_K, active_BK, covariance_BD, eps=0.0),
            joint_distance(squared_BD, mask_DK, active_BK, covariance_BD, eps=0.0),
        )


def test_no_active_operator_costs_and_teaches_nothing():
    squared_BD, mask_DK, active_BK, first_BD, second_BD = case()
    mask_DK.requires_grad_()
    none_BK = torch.zeros_like(active_BK)
    for covariance_BD in (None, first_BD + second_BD):
        value = joint_distance(squared_BD, mask_DK, none_BK, covariance_BD)
        value.backward()
        assert value.item() == 0.0
        assert (mask_DK.grad == 0).all()


def test_many_operators_do_not_underflow():
    # 60 masks of 0.01 multiply to 10^-240; in float32 the plain product is 0 / 0.
    squared_BD = torch.tensor([[1.0, 3.0]])
    mask_DK = torch.full((2, 60), 0.01, requires_grad=True)
    active_BK = torch.ones(1, 60, dtype=torch.bool)
    value = joint_distance(squared_BD, mask_DK, active_BK)
    value.backward()
    assert value.item() == pytest.approx(2.0, rel=1e-3)  # float32 of exponents near 500
    # d/dm of sum w d / sum w = w_j (d_j - mean) 2 / m_jk, half the weight each.
    expected = torch.tensor([[-1.0], [1.0]]).expand(2, 60) / 0.01
    torch.testing.assert_close(mask_DK.grad, expected, rtol=1e-3, atol=0)


# --------------------------------------------------------------------------- symmetric_kl


def test_symmetric_kl_is_both_directions():
    squared_BD, _, _, first_BD, second_BD = case(5, 7)
    mean_BD = torch.randn(5, 7, dtype=torch.float64)
    first = Normal(mean_BD, first_BD.sqrt())
    second = Normal(mean_BD + squared_BD.sqrt(), second_BD.sqrt())
    expected = (kl_divergence(first, second) + kl_divergence(second, first)).mean()
    value = symmetric_kl(squared_BD, first_BD, second_BD)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(symmetric_kl(squared_BD, second_BD, first_BD), value)


def test_symmetric_kl_by_hand_and_its_minimum():
    one = torch.ones(1, 1)
    # Variances 1 and 4, means 3 apart: 1/2 [(1 - 4)^2 / 4 + 9 (1 + 1/4)].
    assert symmetric_kl(9 * one, one, 4 * one).item() == pytest.approx(0.5 * (9 / 4 + 9 * 1.25))
    first_BD = torch.rand(4, 5, dtype=torch.float64) + 0.1
    squared_BD = torch.zeros(4, 5, dtype=torch.float64)
    first_BD.requires_grad_()
    value = symmetric_kl(squared_BD, first_BD, first_BD.detach())
    value.backward()
    assert value.item() == 0.0
    torch.testing.assert_close(first_BD.grad, torch.zeros_like(first_BD))


# -------------------------------------------------------- gradients, precision and memory


def test_gradients():
    squared_BD, mask_DK, active_BK, first_BD, second_BD = (
        x.requires_grad_() if x.is_floating_point() else x for x in case()
    )
    check = torch.autograd.gradcheck
    assert check(masked_distance, (squared_BD, mask_DK))
    for power in ("m", "m2"):
        assert check(masked_distance, (squared_BD, mask_DK, first_BD, power))
    assert check(joint_distance, (squared_BD, mask_DK, active_BK))
    assert check(joint_distance, (squared_BD, mask_DK, active_BK, first_BD))
    assert check(symmetric_kl, (squared_BD, first_BD, second_BD))
    distance_BK = torch.rand(active_BK.shape, dtype=torch.float64, requires_grad=True)
    for count in ("active", "all"):
        assert check(subspace_mean, (distance_BK, active_BK, count))


def values(squared_BD, mask_DK, active_BK, first_BD, second_BD):
    """Every loss of this module once."""
    total_BD = first_BD + second_BD
    return [
        masked_distance(squared_BD, mask_DK).sum(),
        masked_distance(squared_BD, mask_DK, total_BD).sum(),
        joint_distance(squared_BD, mask_DK, active_BK),
        joint_distance(squared_BD, mask_DK, active_BK, total_BD),
        symmetric_kl(squared_BD, first_BD, second_BD),
    ]


def test_autocast_does_not_round_the_products():
    inputs = case(8, 32, 19, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        inside = values(*inputs)
    assert inside == values(*inputs)


def test_half_precision_is_computed_in_float32():
    inputs = case(8, 32, 19, dtype=torch.float32)
    for dtype in (torch.bfloat16, torch.float16):
        halves = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
        floats = [x.float() if x.is_floating_point() else x for x in halves]
        halves[3], halves[4] = floats[3], floats[4]  # their sum would be rounded by the caller
        for value, expected in zip(values(*halves), values(*floats), strict=True):
            assert value.dtype == torch.float32
            torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)


class LargestTensor(TorchDispatchMode):
    """Remembers the element count of the largest tensor that any operation returned."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            if isinstance(leaf, torch.Tensor):
                self.numel = max(self.numel, leaf.numel())
        return output


@pytest.mark.parametrize("count", [5, 19])
@pytest.mark.parametrize("loss", ["masked", "joint"])
def test_no_tensor_has_all_three_axes(count, loss):
    batch, dim = 64, 96
    squared_BD, mask_DK, active_BK, first_BD, second_BD = case(batch, dim, count)
    for x in (squared_BD, mask_DK, first_BD):
        x.requires_grad_()
    with LargestTensor() as largest:
        total_BD = first_BD + second_BD
        if loss == "masked":
            value = subspace_mean(masked_distance(squared_BD, mask_DK, total_BD), active_BK)
        else:
            value = joint_distance(squared_BD, mask_DK, active_BK, total_BD)
        value.backward()
    assert mask_DK.grad is not None
    assert largest.numel == batch * dim  # the same for 5 and for 19 operators


def test_shapes_are_quoted():
    squared_BD, mask_DK, active_BK, first_BD, _ = case()
    with pytest.raises(ValueError, match=r"\(4, 6\) and \(3, 6\)"):
        masked_distance(squared_BD, mask_DK.T)
    with pytest.raises(ValueError, match=r"shape \(4, 6\), got \(3, 6\)"):
        masked_distance(squared_BD, mask_DK, first_BD[:3])
    with pytest.raises(ValueError, match=r"\(4, 3\) and \(3, 3\)"):
        subspace_mean(torch.zeros(4, 3), active_BK[:3])
