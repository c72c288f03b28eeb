"""Distances between Gaussians: by hand, against direct evaluations, and what they cost.

Legend: B samples, D embedding dimensions, K operators.
"""

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence
from torch.utils._python_dispatch import TorchDispatchMode

from mast.losses import joint_distance, masked_distance, subspace_mean, symmetric_kl

POWERS: tuple[Literal["m", "m2"], ...] = ("m", "m2")


def random(*shape: int, seed: int = 0, low: float = 0.2, high: float = 2.0) -> Tensor:
    """Uniform float64 in [low, high]."""
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)


def f64(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# Two samples, three dimensions, two masks.
SQUARED = [[1.0, 4.0, 9.0], [4.0, 0.0, 1.0]]
MASK = [[1.0, 0.0], [0.5, 2.0], [0.0, 1.0]]
COVARIANCE = [[2.0, 2.0, 4.0], [1.0, 2.0, 3.0]]


@pytest.mark.parametrize(
    ("covariance", "power", "expected"),
    [
        (None, "m", [[2 / 3, 25 / 3], [4 / 3, 1 / 3]]),
        (COVARIANCE, "m", [[4 / 3, 50 / 8], [8 / 2, 2 / 7]]),
        (COVARIANCE, "m2", [[4 / 2.5, 50 / 12], [8 / 1.5, 2 / 11]]),
    ],
)
def test_masked_distance_by_hand(
    covariance: Any, power: Literal["m", "m2"], expected: list[list[float]]
) -> None:
    covariance_BD = None if covariance is None else f64(covariance)
    distance_BK = masked_distance(f64(SQUARED), f64(MASK), covariance_BD, power, eps=0.0)
    torch.testing.assert_close(distance_BK, f64(expected))


@pytest.mark.parametrize("power", POWERS)
def test_masked_distance_equals_equation_4(power: Literal["m", "m2"]) -> None:
    mean_BD, other_BD = random(7, 11, seed=1), random(7, 11, seed=2)
    first_BD, second_BD = random(7, 11, seed=3), random(7, 11, seed=4)
    mask_DK = random(11, 5, seed=5)
    mask_1KD = mask_DK.T[None]
    difference_BKD = mask_1KD * mean_BD[:, None] - mask_1KD * other_BD[:, None]
    weight_1KD = mask_1KD if power == "m" else mask_1KD**2
    trace_BK = (weight_1KD * first_BD[:, None] + weight_1KD * second_BD[:, None]).sum(-1)
    expected_BK = 2 * difference_BKD.square().sum(-1) / trace_BK
    squared_BD = (mean_BD - other_BD).square()
    distance_BK = masked_distance(squared_BD, mask_DK, first_BD + second_BD, power, eps=0.0)
    torch.testing.assert_close(distance_BK, expected_BK)
    plain_BK = masked_distance(squared_BD, mask_DK)
    torch.testing.assert_close(plain_BK, difference_BKD.square().mean(-1))


def test_m2_does_not_see_the_scale_of_a_mask_and_m_is_linear_in_it() -> None:
    arguments = random(4, 6, seed=1), random(6, 3, seed=2), random(4, 6, seed=3)
    scaled = arguments[0], 0.01 * arguments[1], arguments[2]
    torch.testing.assert_close(
        masked_distance(*scaled, "m2", eps=0.0), masked_distance(*arguments, "m2", eps=0.0)
    )
    torch.testing.assert_close(
        masked_distance(*scaled, "m", eps=0.0), 0.01 * masked_distance(*arguments, "m", eps=0.0)
    )


def test_a_dead_mask_has_distance_zero() -> None:
    mask_DK = torch.zeros(3, 2, dtype=torch.float64)
    for power in POWERS:
        distance_BK = masked_distance(f64(SQUARED), mask_DK, f64(COVARIANCE), power)
        assert distance_BK.eq(0).all()


def test_distances_promote_only_half_types() -> None:
    half = [f64(values).bfloat16() for values in (SQUARED, MASK, COVARIANCE)]
    active_BK = torch.ones(2, 2, dtype=torch.bool)
    for dtype, expected in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        squared_BD, mask_DK, covariance_BD = (values.to(dtype) for values in half)
        results = (
            masked_distance(squared_BD, mask_DK, covariance_BD),
            joint_distance(squared_BD, mask_DK, active_BK, covariance_BD),
            symmetric_kl(squared_BD, covariance_BD, covariance_BD + 1),
        )
        assert [result.dtype for result in results] == [expected] * 3


def test_subspace_mean_by_hand() -> None:
    distance_BK = f64([[1.0, 2.0, 6.0], [3.0, 5.0, 7.0], [8.0, 8.0, 8.0]])
    active_BK = torch.tensor([[True, False, True], [False, True, False], [False] * 3])
    active = subspace_mean(distance_BK, active_BK)
    assert active.item() == pytest.approx((7 / 2 + 5 + 0) / 3)
    every = subspace_mean(distance_BK, active_BK, count="all")
    assert every.item() == pytest.approx((7 / 3 + 5 / 3 + 0) / 3)


def test_joint_distance_by_hand() -> None:
    # Sample 0: both operators, weights (1e-12 x 1, 0.25 x 4, 1 x 0) = (0, 1, 0).
    # Sample 1: the second operator alone, weights (0, 4, 1).
    active_BK = torch.tensor([[True, True], [False, True]])
    arguments = f64(SQUARED), f64(MASK), active_BK
    plain = joint_distance(*arguments, eps=1e-12)
    assert plain.item() == pytest.approx((4.0 + 1 / 5) / 2)
    uncertain = joint_distance(*arguments, f64(COVARIANCE), eps=1e-12)
    assert uncertain.item() == pytest.approx((2 * 4 / 2 + 2 * 1 / (4 * 2 + 3)) / 2)


def test_joint_distance_of_one_operator_is_the_masked_distance() -> None:
    squared_BD, covariance_BD, mask_DK = random(9, 6, seed=1), random(9, 6, seed=2), random(6, 3)
    mask_DK = mask_DK / mask_DK.square().mean(dim=0).sqrt()
    active_BK = torch.eye(3, dtype=torch.bool).repeat(3, 1)
    joint = joint_distance(squared_BD, mask_DK, active_BK, eps=0.0)
    torch.testing.assert_close(
        joint, subspace_mean(masked_distance(squared_BD, mask_DK), active_BK)
    )
    joint = joint_distance(squared_BD, mask_DK, active_BK, covariance_BD, eps=0.0)
    masked_BK = masked_distance(squared_BD, mask_DK, covariance_BD, "m2", eps=0.0)
    torch.testing.assert_close(joint, subspace_mean(masked_BK, active_BK))


@pytest.mark.parametrize("uncertain", [False, True])
def test_joint_distance_does_not_see_the_scale_of_a_mask(uncertain: bool) -> None:
    squared_BD, mask_DK = random(5, 8, seed=1), random(8, 4, seed=2)
    covariance_BD = random(5, 8, seed=3) if uncertain else None
    active_BK = random(5, 4, seed=4) > 1.0
    expected = joint_distance(squared_BD, mask_DK, active_BK, covariance_BD)
    scaled_DK = mask_DK * f64([0.1, 3.0, 1.0, 20.0])
    value = joint_distance(squared_BD, scaled_DK, active_BK, covariance_BD)
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=0)


def test_without_an_active_operator_the_joint_distance_is_zero() -> None:
    squared_BD, mask_DK = random(2, 5), random(5, 3).requires_grad_()
    active_BK = torch.tensor([[False] * 3, [True, False, False]])
    assert joint_distance(squared_BD[:1], mask_DK, active_BK[:1]).item() == 0.0
    both = joint_distance(squared_BD, mask_DK, active_BK)
    alone = joint_distance(squared_BD[1:], mask_DK, active_BK[1:])
    torch.testing.assert_close(both, alone / 2)


@pytest.mark.parametrize("uncertain", [False, True])
def test_nineteen_small_masks_do_not_underflow(uncertain: bool) -> None:
    """The product of 19 squared masks of 0.01 is 1e-76, below the smallest float32."""
    mask_DK = (0.01 * random(12, 19, low=0.9, high=1.1)).float()
    mask_DK[0] = 0.0
    mask_DK.requires_grad_()
    squared_BD = random(3, 12, seed=1).float().requires_grad_()
    covariance_BD = random(3, 12, seed=2).float() if uncertain else None
    active_BK = torch.ones(3, 19, dtype=torch.bool)
    value = joint_distance(squared_BD, mask_DK, active_BK, covariance_BD)
    value.backward()
    wide = [None if x is None else x.detach().double() for x in (squared_BD, mask_DK)]
    weight_D = (wide[1] + 1e-6).square().prod(dim=1)  # type: ignore[operator]
    if covariance_BD is None:
        expected_B = (wide[0] * weight_D).sum(1) / weight_D.sum()
    else:
        trace_B = (covariance_BD.double() * weight_D).sum(1)
        expected_B = 2 * (wide[0] * weight_D).sum(1) / trace_B
    torch.testing.assert_close(value.double(), expected_B.mean(), rtol=1e-4, atol=0)
    for x in (squared_BD, mask_DK):
        assert x.grad is not None
        assert x.grad.isfinite().all()
        assert x.grad.abs().sum() > 0


def test_gradients_equal_finite_differences() -> None:
    squared_BD, first_BD, second_BD = (random(3, 5, seed=s).requires_grad_() for s in (1, 2, 3))
    mask_DK = random(5, 4, seed=4).requires_grad_()
    active_BK = torch.tensor([[True, True, False, True], [False, True, False, False], [False] * 4])
    check = torch.autograd.gradcheck
    for power in POWERS:
        assert check(
            lambda s, m, c, power=power: masked_distance(s, m, c, power),
            (squared_BD, mask_DK, first_BD),
        )
    assert check(
        lambda s, m, c: joint_distance(s, m, active_BK, c), (squared_BD, mask_DK, first_BD)
    )
    assert check(lambda s, m: joint_distance(s, m, active_BK), (squared_BD, mask_DK))
    assert check(symmetric_kl, (squared_BD, first_BD, second_BD))


def test_symmetric_kl_equals_both_divergences() -> None:
    means = random(6, 9, seed=1, low=-2), random(6, 9, seed=2, low=-2)
    covariances = random(6, 9, seed=3), random(6, 9, seed=4)
    first, second = (
        Independent(Normal(mean_BD, covariance_BD.sqrt()), 1)
        for mean_BD, covariance_BD in zip(means, covariances, strict=True)
    )
    # Half the sum of both directions would be the mean; Eq. 5 takes the sum.
    expected = (kl_divergence(first, second) + kl_divergence(second, first)).mean() / 9
    squared_BD = (means[0] - means[1]).square()
    torch.testing.assert_close(symmetric_kl(squared_BD, *covariances), expected)
    torch.testing.assert_close(symmetric_kl(squared_BD, *reversed(covariances)), expected)


def test_symmetric_kl_is_zero_at_equality_and_positive_elsewhere() -> None:
    covariance_BD = random(4, 5).requires_grad_()
    zero_BD = torch.zeros(4, 5, dtype=torch.float64)
    value = symmetric_kl(zero_BD, covariance_BD, covariance_BD.detach())
    (gradient_BD,) = torch.autograd.grad(value, covariance_BD)
    assert value.item() == 0.0
    assert gradient_BD.eq(0).all()
    assert symmetric_kl(zero_BD, covariance_BD, 1.1 * covariance_BD).item() > 0.0
    assert symmetric_kl(zero_BD + 0.1, covariance_BD, covariance_BD).item() > 0.0


def test_shapes_that_do_not_fit_are_refused() -> None:
    squared_BD, mask_DK, active_BK = torch.ones(2, 3), torch.ones(3, 4), torch.ones(2, 4).bool()
    with pytest.raises(ValueError, match=r"masks \(D, K\); got \(2, 3\) and \(4, 3\)"):
        masked_distance(squared_BD, mask_DK.T)
    with pytest.raises(ValueError, match=r"covariance of shape \(2, 3\), got \(3,\)"):
        masked_distance(squared_BD, mask_DK, torch.ones(3))
    with pytest.raises(ValueError, match=r"one shape \(B, K\); got \(2, 4\) and \(1, 4\)"):
        subspace_mean(torch.ones(2, 4), active_BK[:1])
    with pytest.raises(ValueError, match=r"got \(2, 3\), \(3, 4\) and \(1, 4\)"):
        joint_distance(squared_BD, mask_DK, active_BK[:1])
    with pytest.raises(ValueError, match=r"covariance of shape \(2, 3\), got \(1, 3\)"):
        joint_distance(squared_BD, mask_DK, active_BK, torch.ones(1, 3))


class Outputs(TorchDispatchMode):
    """Record the size of every tensor that an operation allocates; views allocate nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = {x.untyped_storage().data_ptr() for x in args if isinstance(x, Tensor)}
        for x in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(x, Tensor):
                self.largest = max(self.largest, x.numel())
                if x.untyped_storage().data_ptr() not in inputs:
                    self.bytes += x.numel() * x.element_size()
        return result


def masked(squared_BD: Tensor, mask_DK: Tensor, active_BK: Tensor, trace_BD: Tensor) -> Tensor:
    return subspace_mean(masked_distance(squared_BD, mask_DK, trace_BD), active_BK)


@pytest.mark.parametrize("distance", [masked, joint_distance])
def test_memory_does_not_grow_with_the_number_of_operators(
    distance: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
) -> None:
    n, d = 64, 256
    records = {}
    for k in (5, 19):
        means = [random(n, d, seed=seed).float().requires_grad_() for seed in (1, 2)]
        covariances = [random(n, d, seed=seed).float().requires_grad_() for seed in (3, 4)]
        mask_DK = random(d, k, seed=5).float().requires_grad_()
        active_BK = random(n, k, seed=6) > 1.0
        with Outputs() as records[k]:
            squared_BD = (means[0] - means[1]).square()
            distance(squared_BD, mask_DK, active_BK, covariances[0] + covariances[1]).backward()
    assert records[19].largest < n * 19 * d
    assert records[19].largest <= n * d
    assert records[19].bytes < 1.3 * records[5].bytes
