"""Limits of the models: extreme features, names of the other library, refused conversions.

Legend: B samples, L locations, C features.
"""

import pytest
import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import nn

from mast.core.errors import UserError
from mast.models import Encoder, EncoderConfig, GeM, synchronise_batchnorm


@pytest.mark.parametrize("power", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 1e5])
def test_gem_is_finite_for_dead_and_for_large_channels(power: float, scale: float) -> None:
    """1e-6 to the tenth is 0 in float32, and 1e5 to the tenth is infinite."""
    generator = torch.Generator().manual_seed(0)
    gem = GeM(power)
    features_BLC = (scale * torch.rand(2, 5, 3, generator=generator)).requires_grad_()
    pooled_BC = gem(features_BLC)
    pooled_BC.sum().backward()
    wide_BLC = features_BLC.detach().double().clamp(min=1e-6)
    expected_BC = wide_BLC.pow(power).mean(dim=1).pow(1 / power)
    torch.testing.assert_close(pooled_BC.double(), expected_BC, rtol=1e-4, atol=0)
    for gradient in (features_BLC.grad, gem.power.grad):
        assert gradient is not None
        assert gradient.isfinite().all()


def test_gem_gradients_are_those_of_its_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    features_BLC = (0.1 + torch.rand(2, 4, 3, generator=generator)).requires_grad_()
    gem = GeM(2.5)
    gradients = torch.autograd.grad(gem(features_BLC).sum(), (features_BLC, gem.power))
    wide_BLC = features_BLC.detach().double().requires_grad_()
    power = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    pooled_BC = wide_BLC.pow(power).mean(dim=1).pow(1 / power)
    expected = torch.autograd.grad(pooled_BC.sum(), (wide_BLC, power))
    for gradient, reference in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient.double(), reference, rtol=1e-4, atol=1e-6)


def test_a_name_of_the_other_library_is_not_offered() -> None:
    with pytest.raises(UserError, match="unknown timm encoder 'alexnet'") as caught:
        Encoder(EncoderConfig("timm:alexnet"), 32)
    assert "mean 'alexnet'" not in str(caught.value)


def test_a_refused_conversion_changes_nothing() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4), BatchNormAct2d(4))
    with pytest.raises(UserError, match="BatchNormAct2d cannot be synchronised"):
        synchronise_batchnorm(model, torch.device("cpu"))
    assert type(model[0]) is nn.BatchNorm2d
