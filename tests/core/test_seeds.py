"""Streams of random numbers by place."""

import numpy as np
import pytest
import torch

from mast.core.seeds import seed_global, stream


def numbers(generator: torch.Generator | None = None) -> torch.Tensor:
    return torch.randint(2**31, (8,), generator=generator)


def test_a_place_has_its_own_stream() -> None:
    places = [(0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 1, 1), (2**40, 1, 1), (2**32 + 1, 0, 0)]
    places += [(), (0,), (5,), (5, 0), (5, 0, 0), (2**32 + 5, 3, 0), (5, 1, 3)]
    streams = [tuple(numbers(stream(*place)).tolist()) for place in places]
    assert len(set(streams)) == len(places)
    assert streams == [tuple(numbers(stream(*place)).tolist()) for place in places]
    for wrong in (-1, 0.5):
        with pytest.raises((ValueError, TypeError)):
            stream(0, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", [(0,), (2**64 - 1, 2**32, 5)])
def test_raw_numbers_are_those_of_numpy(place: tuple[int, ...]) -> None:
    words = [word for number in place for word in divmod(number, 2**32)]
    oracle = np.random.MT19937(np.random.SeedSequence([len(place), *words]))
    raw = oracle.random_raw(5000).astype(np.uint64)  # eight times the 624 words of the state
    expected = raw[0::2] << np.uint64(32) | raw[1::2]
    drawn = torch.empty(2500, dtype=torch.int64).random_(-(2**63), None, generator=stream(*place))
    assert np.array_equal(drawn.numpy().view(np.uint64), expected)
    assert stream(*place).get_state().shape == torch.Generator().get_state().shape


def test_a_place_seeds_the_global_generator_and_a_stream_leaves_it() -> None:
    before = torch.get_rng_state()
    numbers(stream(1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        for place in ((0, 1), (0, 2), (0, 1), (0, 50_699, 0), (0, 55_170, 0)):
            seed_global(*place)
            assert torch.equal(numbers(), numbers(stream(*place)))
