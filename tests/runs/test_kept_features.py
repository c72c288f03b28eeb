"""Features of modules: kept for the next call as long as they give the same of the same images."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mast.data import CanvasSet, DataConfig, open_canvas
from mast.measure.compute import Compute
from mast.runs.load import frozen, load


class Powers(nn.Module):
    """Its exponent is code, not a weight; with noise it draws."""

    def __init__(self, exponent: float = 1.0, noise: float = 0.0) -> None:
        super().__init__()
        self.exponent, self.noise = exponent, noise
        self.images = 0

    def forward(self, images_BCHW: Tensor) -> Tensor:
        self.images += len(images_BCHW)
        mean_BC = images_BCHW.mean(dim=(2, 3)) ** self.exponent
        return mean_BC + self.noise * torch.rand_like(mean_BC)


@pytest.fixture
def canvases(photos: Path) -> CanvasSet:
    return open_canvas(DataConfig(str(photos / "test")), 32)


def features(module: Powers, canvases: CanvasSet) -> Tensor:
    loaded = load(module, size=32)
    return frozen(loaded, module, Compute("cpu")).features(canvases, 32)


def test_features_of_a_module_are_kept_while_it_computes_the_same(canvases: CanvasSet) -> None:
    first, again, other = Powers(), Powers(), Powers(2.0)
    plain_ND = features(first, canvases)
    assert torch.equal(features(again, canvases), plain_ND)
    torch.testing.assert_close(features(other, canvases), plain_ND**2)
    tried = first.images - len(canvases)
    assert (again.images, other.images) == (tried, tried + len(canvases))


def test_features_of_a_module_that_draws_are_not_kept(canvases: CanvasSet) -> None:
    torch.manual_seed(3)
    module = Powers(noise=0.01)
    first_ND = features(module, canvases)
    assert not torch.equal(features(module, canvases), first_ND)
    torch.manual_seed(3)  # what was tried has drawn nothing of it
    drawn_ND = canvases_mean(canvases) + 0.01 * torch.rand(len(canvases), 3)
    torch.testing.assert_close(first_ND, drawn_ND)


def canvases_mean(canvases: CanvasSet) -> Tensor:
    return features(Powers(), canvases)
