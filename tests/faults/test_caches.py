"""Caches that changed on the disk are noticed, and what they held is made again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.measure.accuracy import correct_within
from mast.measure.store import FeatureStore

FEATURES = torch.randn(40, 16, generator=torch.Generator().manual_seed(0))


def overwritten(content: bytearray) -> None:
    """A quarter of it, by 0xff: float32 numbers that are not numbers."""
    half = len(content) // 2
    content[half : half + len(content) // 4] = b"\xff" * (len(content) // 4)


def zeroed(content: bytearray) -> None:
    content[-256:] = bytes(256)


def flipped(content: bytearray) -> None:
    content[-100] ^= 1


def cut_short(content: bytearray) -> None:
    del content[-1:]


@pytest.mark.parametrize("damage", [overwritten, zeroed, flipped, cut_short])
def test_damaged_features_are_not_read(
    tmp_path: Path, damage: Callable[[bytearray], None], caplog: Any
) -> None:
    store = FeatureStore(tmp_path, "encoder")
    path = store.path(images="some")
    assert store.read(path) is None
    store.write(path, FEATURES)
    content = bytearray(path.read_bytes())
    assert torch.equal(_read(store, path), FEATURES)
    assert not caplog.records
    damage(content)
    path.write_bytes(content)
    assert store.read(path) is None
    assert "is damaged" in caplog.text


def _read(store: FeatureStore, path: Path) -> Tensor:
    features_ND = store.read(path)
    assert features_ND is not None
    return features_ND


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_is_no_hit(bad: float) -> None:
    scores_NC = torch.tensor([[0.1, 0.9], [bad, 0.5]])
    with pytest.raises(UserError, match="class scores of 1 of 2 images are not finite"):
        correct_within(scores_NC, torch.tensor([1, 0]), k=1)
