"""Score intervals of proportions, for units that are either right or wrong.

Both invert the score test: they hold the values that the test does not reject, with the error that
each value itself implies. So an interval has a width even where no unit is wrong, and never leaves
the range of what it is of; the percentile bootstrap then has none, as every set that it draws is
alike.
"""

import math
from collections.abc import Callable
from statistics import NormalDist


def wilson(right: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion.

    Args:
        right: Units that are right, of n; no whole number where units count as a share.
        n: Units, at least one.
        level: Coverage that is aimed at.

    Returns:
        Its ends, in [0, 1].

    Raises:
        ValueError: The counts are of no such units.

    Reference:
        Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 1927;
        Newcombe, Two-sided Confidence Intervals for the Single Proportion, Statistics in Medicine
        1998, method 3.
    """
    if not 0 <= right <= n or n < 1:
        raise ValueError(f"expected 0 <= right <= n and n >= 1, got {right} of {n}")
    z = _quantile(level)
    middle = right + z**2 / 2
    margin = z * math.sqrt(right * (n - right) / n + z**2 / 4)
    low, high = (middle - margin) / (n + z**2), (middle + margin) / (n + z**2)
    # Exact in theory; rounding would leave the value outside its interval.
    return 0.0 if right == 0 else low, 1.0 if right == n else high


def tango(gained: float, lost: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Tango's score interval of the difference of two proportions of the same units.

    It leaves out zero exactly where McNemar's test, without a continuity correction, rejects that
    the proportions are equal.

    Args:
        gained: Units that are right in the second only, of n.
        lost: Units that are right in the first only.
        n: Units, at least one; the others are right in both or in neither.
        level: Coverage that is aimed at.

    Returns:
        The ends for second minus first, in [-1, 1].

    Raises:
        ValueError: The counts are of no such units.

    Reference:
        Tango, Equivalence test and confidence interval for the difference in proportions for the
        paired-sample design, Statistics in Medicine 1998, section 3.
    """
    if min(gained, lost) < 0 or gained + lost > n or n < 1:
        raise ValueError(
            f"expected gained and lost of 0 or more, together at most n, and n >= 1, "
            f"got {gained} and {lost} of {n}"
        )
    z = _quantile(level)

    def accepted(difference: float) -> bool:
        """Whether the score test accepts a difference."""
        a = 2 * n
        b = (2 * n - gained + lost) * difference - gained - lost
        c = -lost * difference * (1 - difference)
        share_lost = (math.sqrt(max(b**2 - 4 * a * c, 0.0)) - b) / (2 * a)  # maximum likelihood
        variance = n * (2 * share_lost + difference * (1 - difference))
        return abs(gained - lost - n * difference) <= z * math.sqrt(max(variance, 0.0))

    low, high = (_last_accepted(accepted, (gained - lost) / n, end) for end in (-1.0, 1.0))
    return low, high


def _quantile(level: float) -> float:
    """How many standard errors a two-sided interval of a normal variable spans to either side."""
    return NormalDist().inv_cdf((1 + level) / 2)


def _last_accepted(accepted: Callable[[float], bool], inside: float, outside: float) -> float:
    """The end of an interval between a value inside and the end of the range, by bisection."""
    for _ in range(54):  # halves 2 until it is below the rounding of 1
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if accepted(middle) else (inside, middle)
    return outside
