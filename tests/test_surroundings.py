"""What is set around a call of the library, or for a process, changes nothing of its result."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import mast
from mast.augment import OPERATORS, Pipeline, Preset, center_views, draw_views
from mast.core.canvases import Canvases
from mast.core.compute import whole_float32
from mast.core.run import RunFolder


@contextmanager
def setting(change: Callable[[Any], object], value: Any, before: Any) -> Iterator[None]:
    change(value)
    try:
        yield
    finally:
        change(before)


SURROUNDINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "float64": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
    "device": lambda: torch.device("meta"),
    "inference": torch.inference_mode,
}


@contextmanager
def all_at_once() -> Iterator[None]:
    """Everything that can be set together, and a seed."""
    torch.manual_seed(7)
    with ExitStack() as stack:
        for surrounding in SURROUNDINGS.values():
            stack.enter_context(surrounding())
        yield


def settings() -> list[Any]:
    """What a call has to leave as it was."""
    return [
        torch.get_default_dtype(),
        torch.is_autocast_enabled("cpu"),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_num_threads(),
        torch.get_rng_state().tolist(),
    ]


EVERYTHING = Preset(tuple(OPERATORS))
CANVASES = torch.randint(
    256, (4, 40, 40, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)
ASPECT = torch.tensor([0.5, 1.0, 1.2, 2.0])


def views() -> list[Tensor]:
    """Of a tensor, of images, by PyTorch, and from the center."""
    canvases = Canvases.of(CANVASES, ASPECT)
    return [
        *mast.ViewMaker(EVERYTHING, 16)(CANVASES),
        *mast.ViewMaker("dino", 16)([CANVASES[0].numpy(), CANVASES[1].float() / 255]),
        *draw_views(Pipeline(EVERYTHING, 16, compiled=False), canvases, (0, 1)).images,
        center_views(canvases, 16),
    ]


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_views_are_the_same(name: str) -> None:
    expected = views()
    with SURROUNDINGS[name]():
        before = settings()
        seen = views()
        assert settings() == before
    for view, expected_view in zip(seen, expected, strict=True):
        assert view.dtype is torch.float32
        assert not view.is_inference()  # or nothing could learn from it
        torch.testing.assert_close(view, expected_view, rtol=0, atol=0)


def test_a_run_is_the_same(
    tiny: Callable[..., mast.PretrainConfig], trained: Callable[..., RunFolder], tmp_path: Path
) -> None:
    plain = trained("plain", tmp_path / "plain")
    config = tiny(epochs=1, threads=1)
    torch.set_num_threads(2)
    try:
        with all_at_once():
            before = settings()
            run = mast.pretrain(config)
            assert settings() == before
    finally:
        torch.set_num_threads(1)
    assert run.encoder.read_bytes() == plain.encoder.read_bytes()


def features(run: RunFolder, photos: Path, folder: Path) -> Any:
    return np.load(mast.embed(photos / "test", run.path, folder / "e.npz"))["features"].tolist()


def scores(run: RunFolder, photos: Path, folder: Path) -> Any:
    results = mast.evaluate(run.path, photos, ["knn", "linear"], device="cpu")
    return [result.targets["class"].values for result in results]


def learned(run: RunFolder, photos: Path, folder: Path) -> Any:
    fitted = mast.fit(photos, run.path, out=folder / "c.safetensors", device="cpu")
    classifier = mast.load_classifier(fitted.path)
    images = mast.open_images(sorted((photos / "test" / "class0").iterdir())[:3], 32)
    return [
        classifier.predict(images).probability_BC.tolist(),
        mast.predict(photos / "test", classifier, folder / "p.csv", device="cpu").columns,
        (folder / "p.csv").read_text(),
    ]


@pytest.mark.parametrize("what", [features, scores, learned])
def test_what_is_measured_and_decided_is_the_same(
    what: Callable[[RunFolder, Path, Path], Any], ours: RunFolder, photos: Path, tmp_path: Path
) -> None:
    expected = what(ours, photos, tmp_path)
    with all_at_once():
        before = settings()
        assert what(ours, photos, tmp_path) == expected
        assert settings() == before


def test_modules_obey_the_mixed_precision_of_a_training(ours: RunFolder) -> None:
    images = torch.rand(2, 3, 32, 32)
    encoder, embedding = mast.load_encoder(ours.path), mast.load_embedding(ours.path)
    with torch.autocast("cpu", torch.bfloat16):
        assert encoder(images).dtype is torch.bfloat16
        inside = embedding(images, ignore="color")
    assert not inside.equal(embedding(images, ignore="color"))


def test_what_a_caller_set_for_products_comes_back() -> None:
    with setting(torch.set_float32_matmul_precision, "high", "highest"):
        places = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
        was = [place.fp32_precision for place in places]
        with whole_float32():
            assert torch.get_float32_matmul_precision() == "highest"
            assert {place.fp32_precision for place in places} == {"ieee"}
        assert [place.fp32_precision for place in places] == was
        assert torch.get_float32_matmul_precision() == "high"
