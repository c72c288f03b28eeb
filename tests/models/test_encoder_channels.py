"""Encoders of images of other channels than RGB: checked, and started from weights of RGB."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import ENCODER, VIT

from mast.core.errors import UserError
from mast.core.reading import Layout, Reading
from mast.models import Classifier, Encoder, EncoderConfig, load_classifier
from mast.models.classifier import save_classifier
from mast.models.encoders import usual_normalization
from mast.models.foreign import load_foreign


def of_channels(config: EncoderConfig, channels: int) -> EncoderConfig:
    return replace(config, **usual_normalization(channels)._asdict())


# ------------------------------------------------------------------------- weights of RGB


@pytest.mark.parametrize("config", [ENCODER, VIT], ids=["resnet", "vit"])
@pytest.mark.parametrize("channels", [1, 5])
def test_the_first_layer_is_repeated_over_channels(config: EncoderConfig, channels: int) -> None:
    """Where all channels are one gray image, C weights in turn times 3/C act as RGB's."""
    gray = {"mean": (0.4,) * 3, "std": (0.2,) * 3}
    source = Encoder(replace(config, **gray), 32).eval()
    encoder = Encoder(replace(config, mean=(0.4,) * channels, std=(0.2,) * channels), 32).eval()
    encoder.model.load_state_dict(encoder.weights_of(source))
    gray_B1HW = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    # Of one channel or of a multiple of three it is the gray image itself; else a tinted one.
    count_3 = torch.tensor([len(range(at, channels, 3)) for at in range(3)])
    share_3 = torch.ones(3) if channels == 1 else 3 * count_3 / channels
    tinted_BCHW = 0.4 + share_3[:, None, None] * (gray_B1HW - 0.4)
    with torch.no_grad():
        expected = source.model(((tinted_BCHW) - 0.4) / 0.2)
        theirs = encoder.model((gray_B1HW.expand(-1, channels, -1, -1) - 0.4) / 0.2)
    torch.testing.assert_close(theirs, expected, rtol=1e-4, atol=1e-4)


def test_weights_of_other_projects_say_their_channels(tmp_path: Path) -> None:
    """Bands of satellites, for example; how they were normalised no file says."""
    source = Encoder(of_channels(VIT, 13), 32).eval()
    torch.save(source.model.state_dict(), tmp_path / "bands.pth")
    foreign = load_foreign(tmp_path / "bands.pth", VIT.name, 32, VIT.options).encoder
    assert foreign.config.normalization == usual_normalization(13)
    images_BCHW = torch.rand(2, 13, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(foreign(images_BCHW), source(images_BCHW))


# -------------------------------------------------------------------- how files were read

READING = Reading(Layout(5, deep=True), (0.0,), (1.0, 2.0, 3.0, 4.0, 5.0), no_data=-9999.0)


def test_a_classifier_keeps_how_files_were_read(tmp_path: Path) -> None:
    encoder = Encoder(of_channels(ENCODER, 5), 32).eval()
    encoder.reading = READING
    head = torch.nn.Linear(encoder.dim, 2)
    classifier = Classifier(encoder, head, ("a", "b"), 32)
    file = tmp_path / "classifier-a.safetensors"
    save_classifier(classifier, file)
    loaded = load_classifier(file)
    assert loaded.reading == READING
    images_BCHW = torch.rand(2, 5, 32, 32)
    assert torch.equal(
        loaded.predict(images_BCHW).probability_B, classifier.eval().predict(images_BCHW)[1]
    )
    with pytest.raises(UserError, match=r"\(B, 5, H, W\)"):
        loaded.predict(torch.rand(2, 3, 32, 32))
    # A module of the user's own, of which the file has no code.
    classifier.encoder = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    classifier.head = torch.nn.Linear(5, 2)
    save_classifier(classifier, file)
    again = load_classifier(file, encoder=classifier.encoder)
    assert (again.reading, again.channels) == (READING, 5)
