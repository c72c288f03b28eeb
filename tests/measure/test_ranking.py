"""Average precision by both of VOC's definitions, against rankings worked out by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.protocols.svm import average_precision


def test_both_definitions_by_hand() -> None:
    # Found at ranks 1, 3 and 6 of six: precisions 1, 2/3 and 1/2 at recalls 1/3, 2/3 and 1.
    score = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    present = torch.tensor([1, 0, 1, 0, 0, 1]).bool()
    precision = average_precision(score, present)
    assert float(precision.area) == pytest.approx((1 + 2 / 3 + 1 / 2) / 3)
    # Recalls 0 to .3 reach 1, .4 to .6 reach 2/3, .7 to 1 reach 1/2.
    assert float(precision.eleven_point) == pytest.approx((4 * 1 + 3 * 2 / 3 + 4 / 2) / 11)


def test_a_later_higher_precision_counts_for_what_came_before() -> None:
    score = torch.tensor([5.0, 4, 3, 2, 1])
    present = torch.tensor([0, 1, 1, 1, 0]).bool()  # precisions 1/2, 2/3, 3/4: the last is best
    precision = average_precision(score, present)
    assert float(precision.area) == pytest.approx(3 / 4)
    assert float(precision.eleven_point) == pytest.approx(3 / 4)


def test_equal_scores_enter_together_whatever_their_order() -> None:
    score = torch.tensor([1.0, 1, 1, 1, 0])
    for present in ([1, 1, 0, 0, 1], [0, 0, 1, 1, 1]):
        precision = average_precision(score, torch.tensor(present).bool())
        # Two of four at recall 2/3, then three of five.
        assert float(precision.area) == pytest.approx(3 / 5)


@given(
    rows=st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 3)), min_size=1),
)
def test_counting_an_image_twice_is_showing_it_twice(rows: list[tuple[int, bool, int]]) -> None:
    score, present, count = (np.array(column) for column in zip(*rows, strict=True))
    drawn = average_precision(
        torch.from_numpy(score).double(),
        torch.from_numpy(present.astype(bool)),
        torch.from_numpy(count)[None].float(),
    )
    score, present = np.repeat(score, count), np.repeat(present, count)
    if not present.any():
        assert drawn.area.isnan()
        return
    shown = average_precision(torch.from_numpy(score).double(), torch.from_numpy(present))
    assert float(drawn.area) == pytest.approx(float(shown.area))
    assert float(drawn.eleven_point) == pytest.approx(float(shown.eleven_point))
