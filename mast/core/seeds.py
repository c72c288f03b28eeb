"""Random streams that are pure functions of a place in a run."""

import numpy as np
import torch


def stream(*place: int) -> torch.Generator:
    """A CPU generator for one place, such as (seed, step, part).

    Args:
        place: Whole numbers from 0; other places give other streams.
    """
    state = np.random.SeedSequence(place).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> 1))


def seed_global(*place: int) -> None:
    """Seed PyTorch's own generators, of the CPU and of every device, for one place.

    Only for libraries that draw from them, such as torchvision; everything else takes a `stream`.

    Args:
        place: As of `stream`.
    """
    torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1)[0]))
