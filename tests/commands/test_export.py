"""`mast export`: encoders in the names and shapes of other libraries."""

from pathlib import Path

import pytest
import timm
import torch
import torchvision
from safetensors.torch import load_file
from torch import nn

import mast
from mast.core.errors import UserError
from mast.models import Encoder, EncoderConfig, save_encoder


def resnet18(tmp_path: Path, size: int) -> Encoder:
    encoder = Encoder(EncoderConfig("resnet18"), size).eval()
    with torch.no_grad():  # statistics other than those of the start
        for module in encoder.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0.0, 0.1)
                module.weight.uniform_(0.5, 1.5)
    save_encoder(encoder, tmp_path / "encoder.safetensors")
    return encoder


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_exported_state_dicts_load_in_their_library(tmp_path: Path, library: str) -> None:
    encoder = resnet18(tmp_path, size=96)
    file = mast.export(tmp_path / "encoder.safetensors", library)
    state = load_file(file)
    images_BCHW = torch.rand(2, 3, 96, 96)
    normalised = (images_BCHW - encoder.mean) / encoder.std
    if library == "timm":
        model = timm.create_model("resnet18", num_classes=0).eval()
    else:
        model = torchvision.models.resnet18().eval()
        model.fc = nn.Identity()
    model.load_state_dict(state)
    with torch.no_grad():
        assert torch.allclose(model(normalised), encoder(images_BCHW), atol=1e-5)


def test_export_of_a_run_with_a_small_stem(run: Path) -> None:
    file = mast.export(run, "timm")
    assert file == run / "encoder-timm.safetensors"
    with pytest.raises(UserError, match="torchvision has no model with the weights"):
        mast.export(run, "torchvision")
    with pytest.raises(UserError, match="Did you mean 'timm'"):
        mast.export(run, "timn")
