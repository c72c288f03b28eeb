"""Every sample once, and no replay: the order is computed from a place."""

from itertools import chain

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.data.shards.sampler import ShardSampler


def batches(sampler, step=0):
    """The batches from one step on, and the numbers of samples in the order they are read."""
    first_S = np.cumsum(sampler.count_S) - sampler.count_S
    read = []

    def samples(shard, first, stop):
        for number in range(int(first_S[shard]) + first, int(first_S[shard]) + stop):
            read.append(number)
            yield number

    streams = [
        [*chain(*sampler.stream(number, step, samples))]
        for number in range(sampler.batch_size // sampler.each)
    ]
    each = sampler.each
    found = [
        [*chain(*(stream[at : at + each] for stream in streams))]
        for at in range(0, len(streams[0]) - each + 1, each)
    ]
    return found, read


@settings(deadline=None, max_examples=40)
@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=200),
    batch_size=st.integers(1, 36),
    shuffle=st.sampled_from([1, 20, 500]),
    place=st.floats(0, 1),
)
def test_every_sample_comes_once_from_wherever_an_epoch_goes_on(counts, batch_size, shuffle, place):
    sampler = ShardSampler(np.array(counts), batch_size, shuffle, 7, 3)
    whole, read = batches(sampler)
    assert len(whole) == sum(counts) // batch_size
    seen = [*chain(*whole)]
    assert len({*seen}) == len(seen) == len(whole) * batch_size
    assert len({*read}) == len(read) <= sum(counts), "a sample is read twice"
    step = round(place * len(whole))
    assert batches(sampler, step)[0] == whole[step:]


def test_batches_are_mixed_and_differ_by_epoch():
    one, other = (ShardSampler(np.full(256, 25), 64, 1600, 0, epoch) for epoch in (0, 1))
    (first, *_), (another, *_) = batches(one)[0], batches(other)[0]
    assert len({number // 25 for number in first}) == 64, "each of another shard"
    assert len({number % 25 for number in first}) > 5, "from anywhere in it"
    assert np.mean(np.array(first) != np.array(another)) > 0.9
