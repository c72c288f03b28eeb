"""One thread for what scikit-learn, SciPy and NumPy compute of a few hundred images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread of OpenMP and of the libraries of linear algebra.

    A step of t-SNE on some hundred images takes half a millisecond: two threads, which wait for
    each other several times in it, gain nothing on a machine that is idle, and took 15 times as
    long on one that was not.
    """
    # Of threadpoolctl, which scikit-learn needs; there is no public name for it here.
    from sklearn.utils.parallel import _get_threadpool_controller

    with _get_threadpool_controller().limit(limits=1):
        yield
