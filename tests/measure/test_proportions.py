"""Score intervals: published examples, SciPy, the tests that they invert, their coverage."""

import itertools
import math

import pytest
from scipy.stats import binom, binomtest, multinomial

from mast.measure.bootstrap import tango, wilson


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),  # Newcombe, 1998 (the single proportion), Table I, method 3
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0, 0.1611),
     (1, 29, 0.0061, 0.1718)],
)  # fmt: skip
def test_published_intervals_of_a_proportion(right: int, n: int, low: float, high: float) -> None:
    assert wilson(right, n) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("n", [1, 7, 100])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_a_proportion_is_that_of_scipy(n: int, level: float) -> None:
    for right in range(n + 1):
        expected = binomtest(right, n).proportion_ci(level, method="wilson")
        low, high = wilson(right, n, level)
        assert (low, high) == pytest.approx((expected.low, expected.high))
        assert low <= right / n <= high


@pytest.mark.parametrize(
    ("gained", "lost", "n", "level", "low", "high"),
    [
        (9, 3, 32, 0.95, -0.027, 0.390),  # Tango, 1998
        (0, 1, 44, 0.90, -0.096, 0.037),  # likewise
        (16, 8, 86, 0.95, -0.020, 0.207),  # Agresti and Min, 2005
        (1, 7, 21, 0.95, -0.517, -0.026),  # Fagerland, Lydersen and Laake, 2014
    ],
)
def test_published_intervals_of_a_paired_difference(
    gained: int, lost: int, n: int, level: float, low: float, high: float
) -> None:
    assert tango(gained, lost, n, level) == pytest.approx((low, high), abs=5e-4)


def test_a_paired_difference_at_the_edges() -> None:
    bound = 1.959964**2 / (50 + 1.959964**2)  # no unit differs: Wilson's interval of none of 50
    assert tango(0, 0, 50) == pytest.approx((-bound, bound))
    assert wilson(0, 50)[1] == pytest.approx(bound)
    low, high = tango(50, 0, 50)
    assert 0.8 < low < high == 1
    low, high = tango(3, 9, 40)
    assert tango(9, 3, 40) == pytest.approx((-high, -low))


def test_it_leaves_out_zero_where_mcnemar_rejects() -> None:
    for gained, lost in itertools.product(range(15), repeat=2):
        low, high = tango(gained, lost, 40)
        assert low <= (gained - lost) / 40 <= high
        statistic = abs(gained - lost) / math.sqrt(max(gained + lost, 1))
        assert (low > 0 or high < 0) == (statistic > 1.959964)


@pytest.mark.parametrize(("p", "n"), [(0.5, 100), (0.95, 340), (0.99, 50), (0.99, 100)])
def test_coverage_of_a_proportion(p: float, n: int) -> None:
    """Exactly, over all counts; the bootstrap has 40 and 63 % in the last two."""
    inside = [right for right in range(n + 1) if wilson(right, n)[0] <= p <= wilson(right, n)[1]]
    assert 0.91 < binom.pmf(inside, n, p).sum() < 0.97


@pytest.mark.parametrize(("gained", "lost"), [(0.25, 0.25), (0.06, 0.02), (0.01, 0.005)])
def test_coverage_of_a_paired_difference(gained: float, lost: float) -> None:
    n, share = 50, [gained, lost, 1 - gained - lost]
    covered = 0.0
    for more, fewer in itertools.product(range(n + 1), repeat=2):
        chance = multinomial.pmf([more, fewer, n - more - fewer], n, share)
        if chance > 1e-9:
            low, high = tango(more, fewer, n)
            covered += chance * (low <= gained - lost <= high)
    assert covered > 0.93


@pytest.mark.parametrize(("right", "n"), [(-1, 5), (6, 5), (0, 0)])
def test_counts_of_a_proportion_are_checked(right: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"n >= 1, got {right} of {n}"):
        wilson(right, n)


@pytest.mark.parametrize(("gained", "lost", "n"), [(-1, 0, 5), (3, 3, 5), (0, 0, 0)])
def test_counts_of_a_paired_difference_are_checked(gained: int, lost: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"got {gained} and {lost} of {n}"):
        tango(gained, lost, n)
