"""Features on disk: asked for once, never taken for those of another encoder or view."""

import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from tiny_evaluation import QUICK
from torch import nn

from mast.core.compute import Compute
from mast.data import Source, open_photos
from mast.data.store import ImageStore
from mast.encoders.changes import Change
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import evaluate_encoder
from mast.evaluation.result import Result


def test_the_next_protocol_needs_no_forward_pass(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    store = ImageStore(tmp_path)

    def evaluate(protocol: str) -> Result:
        (result,) = evaluate_encoder(FrozenEncoder(encoder, store=store), data, protocol, QUICK)
        return result

    first = evaluate("knn")
    assert encoder.calls == 3  # one batch a set
    evaluate("linear")
    second = evaluate("knn")
    assert encoder.calls == 3
    assert second == first
    (kept,) = store.kept()
    assert kept.images == sum(map(len, data.named.values()))


def test_everything_that_matters_has_rows_of_its_own(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    store = ImageStore(tmp_path)

    def features(
        described: str | None = None,
        size: int = 16,
        compute: Compute | None = None,
        change: Change | None = None,
    ) -> torch.Tensor:
        frozen = FrozenEncoder(encoder, compute, store, kept_as=described)
        return frozen.features(data.test, size, change)

    dark = Change("dark", lambda images, _: images / 2)
    plain, halved = features(), features(change=dark)
    features("other code")
    features(size=12)
    features(compute=Compute(dtype=torch.bfloat16))
    others = replace(data.test, fingerprint="other images", own_keys=())
    FrozenEncoder(encoder, store=store).features(others, 16)
    with torch.no_grad():
        encoder.norm.weight.mul_(2)
    doubled = features()
    assert encoder.calls == 7
    assert sum(kept.images for kept in store.kept()) == 7 * len(data.test)
    assert torch.equal(doubled, 2 * plain)
    torch.testing.assert_close(halved, plain / 2)
    assert torch.equal(features(), doubled)
    assert encoder.calls == 7


def test_only_what_a_set_does_not_share_is_encoded(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    """Of a set in another order, with an image twice, and one with images that are new."""
    frozen = FrozenEncoder(encoder, store=ImageStore(tmp_path))
    known = frozen.features(data.test.part(range(10)), 16)
    others = data.test.part([3, 20, 3, 0, 20, 11])
    seen: list[int] = []
    encoder.register_forward_pre_hook(lambda _, images: seen.append(len(images[0])))
    features_ND = frozen.features(others, 16)
    assert seen == [2]
    assert torch.equal(features_ND[[0, 2, 3]], known[[3, 3, 0]])
    expected_ND = FrozenEncoder(encoder).features(others, 16)
    torch.testing.assert_close(features_ND, expected_ND)


def test_what_is_new_is_decoded_once_and_encoded_on_the_way(
    encoder: nn.Module, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    frozen = FrozenEncoder(encoder, store=ImageStore(tmp_path / "store"))
    opened = open_photos(str(photos / "test"), 16, see=frozen.see)
    expected_ND = FrozenEncoder(encoder).features(opened, 16)
    monkeypatch.setattr(Source, "open", None)
    torch.testing.assert_close(frozen.features(opened, 16), expected_ND)


def test_a_full_disk_costs_the_cache_and_not_the_evaluation(
    encoder: nn.Module,
    data: EvaluationData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full(sqlite3.Connection):
        def executemany(self, *_: object) -> sqlite3.Cursor:
            raise OSError(28, "No space left on device")

    frozen = FrozenEncoder(encoder, store=ImageStore(tmp_path))
    known = frozen.features(data.test.part(range(10)), 16)
    monkeypatch.setattr("sqlite3.connect", partial(sqlite3.connect, factory=Full))
    seen: list[int] = []
    encoder.register_forward_pre_hook(lambda _, images: seen.append(len(images[0])))
    for rest in (range(24), range(5, 24)):
        features_ND = frozen.features(data.test.part(rest), 16)
        assert torch.equal(features_ND[: 10 - rest[0]], known[rest[0] :])
    assert seen == [14, 14]  # what was kept before is read
    assert caplog.text.count("No space left on device") == 1
