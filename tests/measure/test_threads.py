"""Small products are computed by one thread, and whatever happens the others are given back."""

from contextlib import suppress

import numpy as np
import pytest
import torch

from mast.analyses.subspaces import _planes
from mast.measure.compute import SMALL, one_thread, threads_for


@pytest.mark.parametrize(
    ("multiplications", "device", "expected"), [(1, "cpu", 1), (SMALL, "cpu", 2), (1, "meta", 2)]
)
def test_threads_for_a_product(multiplications: int, device: str, expected: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with suppress(KeyError), threads_for(int(multiplications), torch.device(device)):
            assert torch.get_num_threads() == expected
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_one_thread_of_every_library() -> None:
    import sklearn.manifold  # noqa: F401
    from sklearn.utils.parallel import _get_threadpool_controller

    before = [library["num_threads"] for library in _get_threadpool_controller().info()]
    assert before
    with one_thread():
        inside = [library["num_threads"] for library in _get_threadpool_controller().info()]
        assert set(inside) == {1}
    assert [library["num_threads"] for library in _get_threadpool_controller().info()] == before


def test_equal_subspaces_share_a_map(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def plane(unit_ND: torch.Tensor) -> np.ndarray:
        drawn.append(unit_ND)
        return np.full((len(unit_ND), 2), float(unit_ND.sum()))

    monkeypatch.setattr("mast.analyses.subspaces._plane", plane)
    one, other = torch.ones(4, 3), torch.zeros(4, 3)
    maps = _planes([one, other, one.clone()])
    assert len(drawn) == 2
    assert [float(each[0, 0]) for each in maps] == [12, 0, 12]
