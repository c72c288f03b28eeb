"""The two stages, as properties.

Legend: B samples, K operators.
"""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.augment import ScheduleConfig, draw_chosen, draw_subsets
from mast.augment.draw import compose_count

shares = st.floats(0, 1)
counts = st.integers(1, 30)


@given(shares, shares, counts, shares)
def test_count_is_in_range_and_never_falls(first, second, count, stage1):
    early, late = sorted((first, second))
    a, b = compose_count(early, count, stage1), compose_count(late, count, stage1)
    assert 1 <= a <= b <= count
    if early < stage1:
        assert a == 1


@given(counts, st.floats(0, 0.99))
def test_a_run_ends_with_all_operators(count, stage1):
    assert compose_count(1.0, count, stage1) == count
    assert compose_count(stage1, count, stage1) == 1


def test_count_follows_the_formula():
    assert [compose_count(p, 5) for p in (0, 0.49, 0.5, 0.6, 0.75, 0.9, 1)] == [1, 1, 1, 2, 3, 4, 5]
    assert compose_count(1.0, 5, stage1=1.0) == 1
    early = [compose_count(p, 5, 0.1, 0.3) for p in (0.05, 0.15, 0.2, 0.3, 0.9)]
    assert early == [1, 2, 3, 5, 5]
    assert compose_count(0.5, 15, stage1=0.0) == 8


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), counts, st.data())
def test_subsets_have_exactly_their_size(n, count, data):
    compose = data.draw(st.integers(0, count))
    chosen = draw_subsets(n, count, compose, torch.Generator().manual_seed(n))
    assert chosen.shape == (n, count)
    assert (chosen.sum(dim=1) == compose).all()


def test_subsets_are_uniform():
    chosen = draw_subsets(20_000, 6, 2, torch.Generator().manual_seed(0)).float()
    assert (chosen.mean(dim=0) - 1 / 3).abs().max() < 0.015
    pairs = chosen.T @ chosen / len(chosen)
    assert (pairs[~torch.eye(6, dtype=torch.bool)] - 1 / 15).abs().max() < 0.01


def test_chosen_follows_the_configuration():
    generator = torch.Generator()
    assert draw_chosen(ScheduleConfig(staged=False), 5, 0.2, 4, generator) is None
    early = draw_chosen(ScheduleConfig(), 5, 0.2, 4, generator)
    assert early is not None
    assert early.sum(dim=1).tolist() == [1] * 4
    assert draw_chosen(ScheduleConfig(), 5, 1.0, 4, generator) is None


def test_a_share_of_whole_compositions_loses_operators():
    generator = torch.Generator().manual_seed(0)
    config = ScheduleConfig(staged=False, leave_out=0.5)
    chosen = draw_chosen(config, 5, 0.2, 20_000, generator)
    assert chosen is not None
    missing = (~chosen).float()
    assert missing.sum(dim=1).max() == 1
    # Each of the five is the one left out of a tenth of the pairs.
    assert (missing.mean(dim=0) - 0.1).abs().max() < 0.01
    assert draw_chosen(config, 1, 0.2, 4, generator) is None  # a lone operator stays
    early = draw_chosen(replace(config, staged=True), 5, 0.2, 4, generator)
    assert early is not None
    assert early.sum(dim=1).tolist() == [1] * 4
    config = replace(config, leave_out=1.0, leave_out_count="any")
    chosen = draw_chosen(config, 5, 0.2, 20_000, generator)
    assert chosen is not None
    # One to four operators act, each number as often, and each operator in half of the pairs.
    shares = chosen.sum(dim=1).bincount(minlength=6) / len(chosen)
    assert (shares - torch.tensor([0, 0.25, 0.25, 0.25, 0.25, 0])).abs().max() < 0.01
    assert (chosen.float().mean(dim=0) - 0.5).abs().max() < 0.02


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.1, 5), "progress"),
        ((-0.1, 5), "progress"),
        ((0.5, 0), "operator"),
        ((0.5, 5, 2.0), "stage1"),
        ((0.5, 5, 0.5, 0.4), "full"),
        ((0.5, 5, 0.5, 1.1), "full"),
    ],
)
def test_counts_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        compose_count(*arguments)


def test_subsets_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"\[0, 5\], got 7; nearest is 5"):
        draw_subsets(3, 5, 7, torch.Generator())
