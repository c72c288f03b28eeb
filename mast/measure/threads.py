"""How many threads compute something small: those that wait for one another need far longer.

On a machine that is busy with something else, two threads took ten times as long as one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 1e8  # multiplications of one product below which a second thread costs more than it does


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread of OpenMP and of the libraries of linear algebra.

    For what scikit-learn, SciPy and NumPy compute of a few hundred images: a step of t-SNE takes
    half a millisecond, and two threads, which wait for each other several times in it, gain nothing
    on a machine that is idle, and took 15 times as long on one that was not.
    """
    # Of threadpoolctl, which scikit-learn needs; there is no public name for it here.
    from sklearn.utils.parallel import _get_threadpool_controller

    with _get_threadpool_controller().limit(limits=1):
        yield


@contextmanager
def threads_for(multiplications: int, device: torch.device) -> Iterator[None]:
    """PyTorch's threads for a product on a device: one where it is small, as many as ever if not.

    Args:
        multiplications: Of the product.
        device: Where it is computed; threads are those of a CPU.
    """
    threads = torch.get_num_threads()
    if device.type == "cpu" and multiplications < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
