"""Every sample once, whatever the ranks, and no replay: the order is computed from a place."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.data.shards.dealing import Deal, Dealing, Shuffle


def places(row):
    return [
        place
        for start, stop in zip(row.start_I.tolist(), row.stop_I.tolist(), strict=True)
        for place in range(start, stop)
    ]


@settings(deadline=None, max_examples=25)
@given(
    length=st.integers(0, 10_000),
    width=st.integers(1, 12_000),
    cuts=st.lists(st.floats(0, 1), max_size=4),
)
def test_a_shuffle_is_one_order_wherever_it_begins(length, width, cuts):
    shuffle = Shuffle(length, width, (1, 2))
    whole = shuffle.between(0, length)
    assert np.array_equal(np.sort(whole), np.arange(length))
    read = np.maximum.accumulate(whole) + 1  # samples that were read until each came
    assert (read - np.arange(length) <= width).all(), "the buffer holds more than its width"
    bounds = sorted({0, length, *(round(cut * length) for cut in cuts)})
    for start, stop in pairwise(bounds):
        assert np.array_equal(shuffle.between(start, stop), whole[start:stop])
        assert places(shuffle.left(start)) == sorted(whole[start:].tolist())


def test_a_shuffle_mixes():
    shuffle, other = (Shuffle(10_000, 1000, (place,)) for place in (0, 1))
    order, another = (each.between(0, 10_000) for each in (shuffle, other))
    moved = order - np.arange(10_000)
    assert 240 < np.abs(moved[1000:-1000]).mean() < 260  # a quarter of the width
    assert (order != another).mean() > 0.99


@settings(deadline=None, max_examples=30)
@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    share=st.integers(1, 3),
    width=st.sampled_from([1, 5, 64]),
    ranks=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=5),
    steps=st.lists(st.integers(1, 6), min_size=5, max_size=5),
    seed=st.integers(0, 99),
)
def test_every_sample_is_dealt_once(counts, share, width, ranks, steps, seed):
    """Also where the number of ranks changes in the middle of an epoch, again and again."""
    batch_size = 12 * share
    total = sum(counts) // batch_size
    deals: tuple[Deal, ...] = ()
    seen: list[int] = []
    at = 0
    for number, (of, length) in enumerate(zip(ranks, steps, strict=False)):
        deals = (*deals, Deal(at, of))
        following = total if number == len(ranks) - 1 else min(total, at + length)
        dealing = Dealing(counts, batch_size, width, seed, 0, deals)
        for rank in range(of):
            row, shuffle = dealing.part(rank)
            taken = (following - at) * batch_size // of
            assert shuffle.length >= taken
            seen += row.at(shuffle.between(0, taken)).tolist()
        at = following
    assert len(set(seen)) == len(seen) == total * batch_size
    assert not seen or max(seen) < sum(counts)


def test_a_billion_samples_are_dealt_again_in_moments():
    """Of each rank only what is within its shuffle's width of where it is, is looked at."""
    deals = (Deal(0, 8), Deal(100_000, 4), Deal(150_000, 8))
    row, shuffle = Dealing([10_000] * 100_000, 4096, 1024, 0, 0, deals).part(7)
    assert len(row) == (10**9 - 150_000 * 4096) // 8
    assert len(row.at(shuffle.between(10**6, 10**6 + 64))) == 64
