"""Pooled maps of several depths, against hooks by hand, of every kind of encoder."""

import copy
from collections import OrderedDict

import pytest
import torch
from tiny import ENCODER
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.models import Encoder, EncoderConfig
from mast.models.depths import Depths, ShallowDepths

ENCODERS = {  # with how many depths, and how many before the last block
    "mobilenet_v3_small": (5, 4),
    "timm:vit_tiny_patch16_224": (5, 3),
    "timm:swin_tiny_patch4_window7_224": (3, 1),
    "swin_t": (1, 0),  # torchvision's maps have their channels last
}
SWIN = {"embed_dim": 12, "depths": [1, 1], "num_heads": [1, 2]}


@pytest.mark.parametrize(("name", "depths"), ENCODERS.items())
def test_depths_of_known_architectures(name: str, depths: tuple[int, int]) -> None:
    size, options = (224, SWIN) if name.startswith("timm:swin") else (64, {})
    encoder = Encoder(EncoderConfig(name, options), size).eval()
    read = Depths(encoder, size).eval()
    images_BCHW = torch.rand(2, 3, size, size)
    with torch.no_grad():
        features_BF = read(images_BCHW)
        output_BD = encoder(images_BCHW)
    assert (len(read.layers), len(read.shallow)) == depths
    assert len(read.widths) == len(read.layers)
    assert features_BF.shape == (2, sum(read.widths))
    torch.testing.assert_close(features_BF[:, -read.widths[-1] :], output_BD)
    assert bool((features_BF.std(dim=0) > 0).any())
    if read.shallow:
        shallow = ShallowDepths(encoder)
        encoding, first_BF = copy.deepcopy(shallow).encode(images_BCHW)
        torch.testing.assert_close(first_BF, features_BF[:, : shallow.dim])
        torch.testing.assert_close(encoding.representation_BC, output_BD)
    else:
        with pytest.raises(UserError, match="swin_t shows no depth but its last"):
            ShallowDepths(encoder)


def test_they_are_the_means_of_the_maps() -> None:
    encoder = Encoder(ENCODER, 32).eval()
    read, maps = Depths(encoder, 32).eval(), list[Tensor]()
    for name in read.layers[:-1]:
        encoder.get_submodule(name).register_forward_hook(lambda *seen: maps.append(seen[2]))
    images_BCHW = torch.rand(3, 3, 32, 32)
    with torch.no_grad():
        features_BF = read(images_BCHW)
    expected = [map_BCHW.mean(dim=(2, 3)) for map_BCHW in maps]
    torch.testing.assert_close(features_BF[:, : -read.widths[-1]], torch.cat(expected, dim=1))


def test_class_tokens_and_the_mean_of_the_others() -> None:
    encoder = Encoder(EncoderConfig("timm:vit_tiny_patch16_224"), 32).eval()
    read, tokens = Depths(encoder, 32, ["model.blocks.3"]).eval(), list[Tensor]()
    encoder.model.blocks[3].register_forward_hook(lambda *seen: tokens.append(seen[2]))
    with torch.no_grad():
        features_BF = read(torch.rand(2, 3, 32, 32))
    (token_BTC,) = tokens
    expected = torch.cat([token_BTC[:, 0], token_BTC[:, 1:].mean(dim=1)], dim=1)
    torch.testing.assert_close(features_BF[:, : read.widths[0]], expected)


def test_layers_of_a_module_are_named() -> None:
    parts = {"first": nn.Conv2d(3, 4, 3, stride=2), "second": nn.Conv2d(4, 5, 3, stride=2)}
    module = nn.Sequential(OrderedDict([*parts.items(), ("pool", nn.AdaptiveAvgPool2d(1)),
                                        ("flat", nn.Flatten())]))  # fmt: skip
    assert Depths(module, 16).layers == ("first", "output")
    assert Depths(module, 16, ["first", "second"]).layers == ("first", "output")  # is the output
    assert Depths(module, 16, []).widths == (5,)
    with pytest.raises(UserError, match="unknown layer 'third'"):
        Depths(module, 16, ["third"])
    with pytest.raises(UserError, match="flat gives neither maps nor tokens"):
        Depths(module, 16, ["flat"])
