"""Random streams as pure functions of a place in a run.

PyTorch's CPU generator is an MT19937, whose 624 words `manual_seed` fills from only the low 32 bits
of its argument: among 77,000 places, two share a stream with probability 1/2. Here NumPy fills the
words from all bits of the place.
"""

from contextlib import AbstractContextManager

import numpy as np
import torch

# Start of a CPU generator's state (ATen's CPUGeneratorImplStateLegacy); then follows the cached
# second value of a normal draw.
_STATE = np.dtype(
    [
        ("seed", "<u8"),
        ("left", "<i4"),  # words not drawn yet, and one
        ("seeded", "<i4"),
        ("next", "<u8"),  # position of the word that is drawn next
        ("words", "<u8", 624),
    ]
)
_BYTES = 5056  # of the whole state


def stream(*place: int) -> torch.Generator:
    """A CPU generator for a place, such as (seed, step, part), from NumPy's MT19937.

    A place consists of whole numbers from 0 to 2^64 - 1. Different places give different streams,
    even if one only has more zeros.
    """
    generator = torch.Generator()
    state = generator.get_state()
    fields = state.numpy()[: _STATE.itemsize].view(_STATE)
    begin = generator.initial_seed(), 1, 1, 0
    assert (len(state), fields.item()[:4]) == (_BYTES, begin), "another PyTorch stores other states"
    numpy_state = np.random.MT19937(_sequence(place)).state["state"]
    fields["words"] = numpy_state["key"]
    fields["next"] = numpy_state["pos"]
    fields["left"] = 625 - numpy_state["pos"]
    generator.set_state(state)
    return generator


def seed_global(*place: int) -> None:
    """Seed PyTorch's global generators, of the CPU and all devices, for a place.

    Only for libraries that use them, such as torchvision; everything else takes a `stream`.
    """
    torch.manual_seed(int(_sequence(place).generate_state(1, np.uint64)[0]))  # devices use all 64
    torch.set_rng_state(stream(*place).get_state())


def forked(*devices: torch.device) -> AbstractContextManager[None]:
    """Restore PyTorch's global generators after the block: the CPU's and those of these GPUs."""
    return torch.random.fork_rng([device for device in devices if device.type == "cuda"])


def _sequence(place: tuple[int, ...]) -> np.random.SeedSequence:
    """A seed from all bits of a place; SeedSequence alone does not distinguish (5,) and (5, 0)."""
    words = [word for number in place for word in divmod(number, 2**32)]
    return np.random.SeedSequence([len(place), *words])
