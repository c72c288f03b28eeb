"""Extraction: order, modes, shapes and failures."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mast.augment import center_views
from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.measure.compute import Compute
from mast.measure.features import extract, represent


@pytest.mark.parametrize("batch_size", [7, 9, 256])
def test_order_and_values(encoder: nn.Module, make_set: Callable[..., CanvasSet], batch_size: int):
    canvases = make_set(9)
    features = extract(encoder, canvases, 16, Compute(batch_size=batch_size))
    encoder.eval()
    expected = encoder(center_views(canvases.batch(range(27)), 16)).detach()
    torch.testing.assert_close(features, expected)
    assert features.dtype is torch.float32
    assert not features.is_inference()


def test_on_a_cpu_batches_are_small_and_change_nothing(
    encoder: nn.Module, make_set: Callable[..., CanvasSet]
) -> None:
    """So that a set of 540 images shows sooner than after a minute how far it is."""
    sizes: list[int] = []
    encoder.register_forward_pre_hook(lambda _, images: sizes.append(len(images[0])))
    canvases = make_set(16)  # of each of three classes
    small = extract(encoder, canvases, 16, Compute("cpu"))
    assert sizes == [24, 24]
    assert torch.equal(small, extract(encoder, canvases, 16, Compute("cpu", batch_size=256)))


def test_modes_and_statistics_are_restored(
    encoder: nn.Module, make_set: Callable[..., CanvasSet]
) -> None:
    encoder.train()
    encoder.norm.eval()  # frozen on purpose
    before = encoder.norm.running_mean.clone()
    extract(encoder, make_set(3), 16)
    assert encoder.training
    assert not encoder.norm.training
    assert torch.equal(encoder.norm.running_mean, before)


def test_mode_is_restored_after_a_failure(make_set: Callable[..., CanvasSet]) -> None:
    class Fails(nn.Module):
        def forward(self, images_BCHW: Tensor) -> Tensor:
            raise RuntimeError("no")

    encoder = Fails().train()
    with pytest.raises(RuntimeError, match="no"):
        extract(encoder, make_set(3), 16)
    assert encoder.training


@pytest.mark.parametrize("bad", [torch.nan, -torch.inf, 1e25])
def test_non_finite_features(make_set: Callable[..., CanvasSet], bad: float) -> None:
    class Diverged(nn.Module):
        def forward(self, images_BCHW: Tensor) -> Tensor:
            features_BD = images_BCHW.mean(dim=(2, 3))
            features_BD[2, 1] = bad
            return features_BD

    with pytest.raises(UserError, match=r"infinite or beyond 1e\+15 for 1 of 9 .*2\.png"):
        extract(Diverged(), make_set(3), 16)


def test_maps_are_refused(make_set: Callable[..., CanvasSet]) -> None:
    with pytest.raises(UserError, match=r"shape \(9, D\), got \(9, 3, 16, 16\)"):
        extract(nn.Identity(), make_set(3), 16)


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        (torch.ones(9, 4, dtype=torch.complex64), "complex64 of shape \\(9, 4\\)"),
        (torch.ones(9, 4, dtype=torch.int64), "int64 of shape"),
        (torch.ones(9, 0), "float32 of shape \\(9, 0\\)"),
    ],
)
def test_what_are_no_numbers_to_compare_is_refused(
    make_set: Callable[..., CanvasSet], output: Tensor, kind: str
) -> None:
    class Constant(nn.Module):
        def forward(self, images_BCHW: Tensor) -> Tensor:
            return output

    with pytest.raises(UserError, match=rf"\(9, D\), of floats and .*, got {kind}"):
        extract(Constant(), make_set(3), 16)


def test_float32_is_without_tf32_and_the_setting_comes_back() -> None:
    settings = torch.backends.cudnn, torch.backends.cuda.matmul
    seen: list[list[bool]] = []

    class Looks(nn.Module):
        def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
            seen.append([setting.allow_tf32 for setting in settings])
            return images_BCHW.flatten(1)

    before = [setting.allow_tf32 for setting in settings]
    for dtype in (torch.float32, torch.bfloat16):
        represent(Looks(), torch.rand(2, 3, 4, 4), dtype)
    assert seen == [[False, False], before]
    assert [setting.allow_tf32 for setting in settings] == before
    assert before[0], "PyTorch's default for convolutions"
