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
