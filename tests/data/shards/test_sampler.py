"""Every sample once, and no replay: the order is computed from a place."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.data.shards.sampler import ShardSampler


def batches(sampler, step=0):
    return [index_B.tolist() for index_SB in sampler.blocks(step) for index_B in index_SB]


@settings(deadline=None, max_examples=40)
@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=200),
    batch_size=st.integers(1, 36),
    shuffle=st.sampled_from([1, 20, 500]),
    place=st.floats(0, 1),
)
def test_every_sample_comes_once_from_wherever_an_epoch_goes_on(counts, batch_size, shuffle, place):
    sampler = ShardSampler(np.array(counts), batch_size, shuffle, 7, 3)
    whole = batches(sampler)
    assert len(whole) == sum(counts) // batch_size
    seen = {index for batch in whole for index in batch}
    assert len(seen) == len(whole) * batch_size
    assert seen <= {*range(sum(counts))}
    step = round(place * len(whole))
    assert batches(sampler, step) == whole[step:]


def test_batches_are_mixed_and_differ_by_epoch():
    one, other = (ShardSampler(np.full(256, 25), 64, 1600, 0, epoch) for epoch in (0, 1))
    first, another = batches(one)[0], batches(other)[0]
    assert len({number // 25 for number in first}) == 64, "each of another shard"
    assert len({number % 25 for number in first}) > 5, "from anywhere in it"
    assert np.mean(np.array(first) != np.array(another)) > 0.9


def test_the_order_is_that_of_every_version():
    order = [[2, 1, 3, 0], [7, 6, 5, 4], [11, 10, 9, 8]]
    assert batches(ShardSampler(np.array([5, 3, 6]), 4, 8, 3, 1)) == order
