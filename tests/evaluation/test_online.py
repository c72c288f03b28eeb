"""The effective rank that is logged while a run trains."""

import math
from itertools import pairwise

import pytest
import torch
from tiny_evaluation import tiny_set

from mast.data import CanvasSet
from mast.evaluation.online import effective_rank, online_scores


def with_spectrum(singular: list[float], n: int, d: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    left, _ = torch.linalg.qr(torch.randn(n, len(singular), generator=generator).double())
    right, _ = torch.linalg.qr(torch.randn(d, len(singular), generator=generator).double())
    return left @ torch.diag(torch.tensor(singular).double()) @ right.T


@pytest.mark.parametrize(
    ("singular", "expected"),
    [
        ([3.0], 1.0),
        ([0.0], 0.0),
        ([2.0, 2.0, 2.0, 2.0], 4.0),
        ([3.0, 1.0], math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))),
        ([0.5, 1e-7], math.exp(2e-7 * (1 + math.log(5e6)))),
    ],
)
def test_known_spectra(singular: list[float], expected: float) -> None:
    for features in (with_spectrum(singular, 50, 8), with_spectrum(singular, 8, 50)):
        for scale in (1, 1e15, 1e-15):
            assert effective_rank(scale * features) == pytest.approx(expected, rel=1e-6)


def test_images_are_from_all_of_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is sorted by class, in most folders."""
    seen, whole = list[str](), tiny_set(15)

    def extract(_: object, some: CanvasSet, *__: object) -> torch.Tensor:
        seen.extend(some.identifiers)
        return torch.eye(len(some))

    monkeypatch.setattr("mast.evaluation.online.extract", extract)
    online_scores(torch.nn.Identity(), whole, 16, limit=10)
    at = [whole.identifiers.index(name) for name in seen]
    assert len(at) == 10
    assert {after - before for before, after in pairwise([*at, len(whole)])} == {4, 5}
