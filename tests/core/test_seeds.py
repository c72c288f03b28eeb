"""Streams of random numbers by place."""

import pytest
import torch

from mast.core.seeds import seed_global, stream


def numbers(generator: torch.Generator | None = None) -> torch.Tensor:
    return torch.randint(2**31, (8,), generator=generator)


def test_a_place_has_its_own_stream() -> None:
    places = [(0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 1, 1), (2**40, 1, 1)]
    streams = [tuple(numbers(stream(*place)).tolist()) for place in places]
    assert len(set(streams)) == len(places)
    assert streams == [tuple(numbers(stream(*place)).tolist()) for place in places]
    for wrong in (-1, 0.5):
        with pytest.raises((ValueError, TypeError)):
            stream(0, wrong)  # type: ignore[arg-type]


def test_a_stream_leaves_the_global_generator() -> None:
    before = torch.get_rng_state()
    numbers(stream(1, 2))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_place_seeds_the_global_generator() -> None:
    with torch.random.fork_rng(devices=[]):
        drawn = []
        for place in ((0, 1), (0, 2), (0, 1)):
            seed_global(*place)
            drawn.append(numbers())
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])
