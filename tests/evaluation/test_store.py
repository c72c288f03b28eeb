"""Features on disk: asked for once, never taken for those of another encoder or view."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_evaluation import QUICK
from torch import nn

from mast.evaluation.changes import Change
from mast.evaluation.compute import Compute
from mast.evaluation.feature_store import FeatureStore, fingerprint
from mast.evaluation.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import evaluate_encoder
from mast.evaluation.result import Result


def test_the_next_protocol_needs_no_forward_pass(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    store = FeatureStore(tmp_path, fingerprint(encoder, "colors"))

    def evaluate(protocol: str) -> Result:
        (result,) = evaluate_encoder(FrozenEncoder(encoder, store=store), data, protocol, QUICK)
        return result

    first = evaluate("knn")
    assert encoder.calls == 3  # one batch a set
    evaluate("linear")
    second = evaluate("knn")
    assert encoder.calls == 3
    assert second == first
    assert len(list(tmp_path.iterdir())) == 3


def test_everything_that_matters_has_a_file_of_its_own(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    def features(described: str = "colors", size: int = 16, **run: Compute) -> torch.Tensor:
        store = FeatureStore(tmp_path, fingerprint(encoder, described))
        return FrozenEncoder(encoder, store=store, **run).features(data.test, size)

    dark, store = Change("dark", lambda of, _: of / 2), fingerprint(encoder, "colors")
    frozen = FrozenEncoder(encoder, store=FeatureStore(tmp_path, store))
    plain, halved = features(), frozen.features(data.test, 16, dark)
    features("other code")
    features(size=12)
    features(compute=Compute(dtype=torch.bfloat16))
    FrozenEncoder(encoder, store=FeatureStore(tmp_path, "")).features(
        replace(data.test, fingerprint="other images"), 16
    )
    with torch.no_grad():
        encoder.norm.weight.mul_(2)
    doubled = features()
    assert encoder.calls == 7 == len(list(tmp_path.iterdir()))
    assert torch.equal(doubled, 2 * plain)
    torch.testing.assert_close(halved, plain / 2)
    assert torch.equal(features(), doubled)
    assert encoder.calls == 7


def test_features_under_the_name_of_others_are_taken_again(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FeatureStore(tmp_path, "colors")
    expected = FrozenEncoder(encoder, store=store).features(data.test, 16)
    (file,) = tmp_path.iterdir()
    other = tmp_path / "other.safetensors"
    store.write(other, expected.flip(0))
    other.replace(file)
    assert torch.equal(FrozenEncoder(encoder, store=store).features(data.test, 16), expected)
    for wrong in (expected * torch.nan, expected.double(), expected[..., None]):
        store.write(file, wrong)
        assert torch.equal(FrozenEncoder(encoder, store=store).features(data.test, 16), expected)
    assert caplog.text.count(f"{file} is not what its name says") == 4


def test_a_full_disk_costs_the_cache_and_not_the_evaluation(
    encoder: nn.Module,
    data: EvaluationData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    store = FeatureStore(tmp_path, "colors")
    monkeypatch.setattr("safetensors.torch.save_file", full)
    frozen = FrozenEncoder(encoder, store=store)
    assert frozen.features(data.test, 16).shape == (24, 12)
    assert "features are not kept" in caplog.text
    assert list(tmp_path.iterdir()) == []
