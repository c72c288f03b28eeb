"""torchvision's image models without their classifiers, and their last feature maps.

Shapes: B batch, L locations of the last feature map (or patch tokens), C features.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mast.core.errors import UserError

HEADS = ("fc", "classifier", "head", "heads")  # what torchvision calls a classifier


class Encoding(NamedTuple):
    """An encoder's output: the representation (B, C) and the features (B, L, C) it pools."""

    representation_BC: Tensor
    features_BLC: Tensor


def torchvision_model(name: str, options: Mapping[str, Any], channels: int) -> nn.Module:
    import torchvision

    model: nn.Module = torchvision.models.get_model(name, weights=None, **options)
    for head in HEADS:
        if hasattr(model, head):
            setattr(model, head, nn.Identity())
    if channels != 3:
        _widen_first(model, channels)
    return model


@torch.no_grad()
def _widen_first(model: nn.Module, channels: int) -> None:
    """Have a model of RGB take other images; what its first layer gives stays as large."""
    first = next(part for part in model.modules() if isinstance(part, nn.Conv2d))
    shape = (first.out_channels, channels, *first.weight.shape[2:])
    weight_OCKK = torch.randn(shape) * (first.weight.std() * math.sqrt(3 / channels))
    first.in_channels, first.weight = channels, nn.Parameter(weight_OCKK)


Family = Callable[[Any, Tensor], Encoding]


def _tokens(model: Any, x: Tensor) -> Encoding:
    x = model._process_input(x)
    x = model.encoder(torch.cat([model.class_token.expand(x.shape[0], -1, -1), x], dim=1))
    return Encoding(x[:, 0], x[:, 1:])


def _in_turn(*parts: str) -> Family:
    """The last map of a model whose parts are run one after the other."""

    def run(model: Any, x: Tensor) -> Encoding:
        for part in parts:
            x = getattr(model, part)(x)
        return _pooled(x)

    return run


FAMILIES: dict[str, Family] = {
    "ResNet": _in_turn("conv1", "bn1", "relu", "maxpool", *(f"layer{at}" for at in range(1, 5))),
    "VisionTransformer": _tokens,
    "ShuffleNetV2": _in_turn("conv1", "maxpool", "stage2", "stage3", "stage4", "conv5"),
    "RegNet": _in_turn("stem", "trunk_output"),
    "DenseNet": lambda model, x: _pooled(model.features(x).relu()),
    "SwinTransformer": _in_turn("features", "norm", "permute"),
}


def family_of(model: nn.Module) -> Family:
    """How torchvision's models of this kind give their last feature map.

    The model is an argument, not bound: a copy of an encoder must run its own weights.
    """
    family = type(model).__name__
    if family in FAMILIES:
        return FAMILIES[family]
    if hasattr(model, "features"):  # AlexNet, VGG, SqueezeNet, MobileNet, EfficientNet, ConvNeXt
        return _in_turn("features")
    # GoogLeNet and Inception have no single map; MNASNet loads no weights without its own metadata.
    raise UserError(f"torchvision's {family} cannot be an encoder: use timm's version of it")


def _pooled(map_BCHW: Tensor) -> Encoding:
    features_BLC = map_BCHW.flatten(2).transpose(1, 2)
    return Encoding(features_BLC.mean(dim=1), features_BLC)
