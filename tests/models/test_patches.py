"""Patches of a ViT that are shown, where they are, and what MAE makes of them.

Shapes: B batch, L patches, S of them shown.
"""

import pytest
import torch
from tiny import ENCODER, SIZE, VIT, build_method, make_views

from mast.core.errors import UserError
from mast.methods.mae import MAE
from mast.models import Encoder
from mast.models.patches import ShownPatches, patches_of, picked, positions


@torch.no_grad()
def test_a_vit_that_sees_all_patches_in_another_order_says_the_same() -> None:
    torch.manual_seed(0)
    encoder = Encoder(VIT, SIZE).eval()
    images = torch.rand(3, 3, SIZE, SIZE)
    expected = encoder.encode(images)
    shown = ShownPatches(encoder)
    assert (shown.side, shown.grid) == (8, 4)
    order_BL = torch.rand(3, 16).argsort(dim=1)
    with shown.only(order_BL):
        found = encoder.encode(images)
    torch.testing.assert_close(found.representation_BC, expected.representation_BC)
    torch.testing.assert_close(found.features_BLC, picked(expected.features_BLC, order_BL))
    torch.testing.assert_close(encoder.encode(images), expected)  # afterwards all are shown


@torch.no_grad()
def test_what_is_hidden_is_not_seen() -> None:
    torch.manual_seed(0)
    encoder = Encoder(VIT, SIZE).eval()
    shown = ShownPatches(encoder)
    images = torch.rand(2, 3, SIZE, SIZE)
    others = images.clone()
    others[..., SIZE // 2 :, :] = 0.5  # the lower eight patches
    with shown.only(torch.arange(8).expand(2, -1)):
        first, second = encoder.encode(images), encoder.encode(others)
    assert torch.equal(first.features_BLC, second.features_BLC)
    assert first.features_BLC.shape == (2, 8, 24)
    assert not torch.equal(encoder.encode(images).features_BLC, encoder.encode(others).features_BLC)


def test_an_encoder_without_patches_is_refused() -> None:
    with pytest.raises(UserError, match="expected a ViT of timm, whose patches can be hidden"):
        ShownPatches(Encoder(ENCODER, SIZE))


def test_patches_are_rows_of_pixels() -> None:
    images = torch.arange(2 * 3 * 4 * 6.0).view(2, 3, 4, 6)
    patches_BLP = patches_of(images, 2)
    assert patches_BLP.shape == (2, 6, 12)
    expected = images[1, :, 2:4, 2:4].permute(1, 2, 0).flatten()  # the fifth
    assert torch.equal(patches_BLP[1, 4], expected)


def test_positions_by_hand() -> None:
    position_LD = positions(3, 8).double()
    assert position_LD.shape == (9, 8)
    column, row = 2.0, 1.0  # of the sixth patch
    frequencies = (1.0, 0.01)
    expected = [
        function(place * frequency)
        for place in (column, row)
        for function in (torch.sin, torch.cos)
        for frequency in torch.tensor(frequencies, dtype=torch.float64)
    ]
    torch.testing.assert_close(position_LD[5], torch.stack(expected), rtol=1e-6, atol=1e-7)


def test_only_hidden_patches_count() -> None:
    """MAE's loss, one patch at a time, from what its parts say."""
    method = build_method("mae", {}, {"dim": 16, "depth": 1, "heads": 2, "hidden": 0.75})
    assert isinstance(method, MAE)
    views = make_views(0, 1)
    images = views.images[0]
    order_BL = method.host_inputs(views, 0.25)["noise_0"].argsort(dim=1)
    loss = method(views, 0.25)["loss"]
    shown, hidden = order_BL[:, :4], order_BL[:, 4:]
    total, count = 0.0, 0
    with torch.no_grad(), method.shown.only(shown):
        seen = method.enter(method.encoder.encode(images).features_BLC)
    pixels = patches_of((images - method.encoder.mean) / method.encoder.std, 8)
    for at in range(len(images)):
        tokens = method.hidden_1W.repeat(16, 1)
        tokens[shown[at]] = seen[at]
        with torch.no_grad():
            found = method.leave(method.decoder((tokens + method.position_LW)[None]))[0]
        for patch in hidden[at].tolist():
            target = pixels[at, patch]
            target = (target - target.mean()) / (target.var() + 1e-6).sqrt()
            total += float((found[patch] - target).square().mean())
            count += 1
    assert count == 12 * len(images)
    assert loss.item() == pytest.approx(total / count, rel=1e-5)


def test_a_decoder_starts_as_the_official_one() -> None:
    method = build_method("mae", {}, {"dim": 64, "depth": 2, "heads": 2})
    assert isinstance(method, MAE)
    weights = [
        parameter
        for part in (method.enter, method.decoder, method.leave)
        for parameter in part.parameters()
        if parameter.ndim == 2
    ]
    assert len(weights) == 2 + 2 * 4
    for weight in weights:  # uniform, by Glorot and Bengio
        bound = (6 / sum(weight.shape)) ** 0.5
        assert 0.95 * bound < weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
    first, second = method.decoder.layers
    for name, parameter in first.named_parameters():
        if parameter.ndim == 2:
            assert not torch.equal(parameter, second.get_parameter(name))
