"""A run that starts from weights has their encoder, and says so."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import ENCODER, configure
from torch import nn

import mast
from mast.config import build_method, change, configuration_of
from mast.core.errors import UserError
from mast.core.optim import make_optimizer
from mast.core.reading import Layout, Reading
from mast.core.run import RunFolder
from mast.encoders.load import load
from mast.models import Encoder, EncoderConfig, load_encoder, save_encoder
from mast.models.encoders import usual_normalization
from mast.models.lora import add_lora, merged
from mast.runs.pretraining import parameter_groups
from mast.runs.start import load_untrained, start, with_architecture

Configure = Callable[..., mast.PretrainConfig]
IMAGES = torch.linspace(0, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)
DARK = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
OPTIONS = ENCODER.options | {"zero_init_last": False}
ARCHITECTURES = [
    replace(ENCODER, options=OPTIONS, stem_stride=None, **DARK),
    EncoderConfig("timm:vit_tiny_patch16_224", {"depth": 2, "embed_dim": 24, "patch_size": 8}),
]


def started(config: mast.PretrainConfig) -> tuple[mast.PretrainConfig, Encoder]:
    """A configuration with its architecture, and its encoder before the first step."""
    config = with_architecture(config)
    method = build_method(config)
    start(method, config)
    return config, method.encoder.eval()


def test_a_run_goes_on_from_another(tiny: Configure, theirs: RunFolder) -> None:
    config = tiny(epochs=1, encoder={"weights": str(theirs.path)})
    run = mast.pretrain(config)
    with torch.no_grad():
        before = load_encoder(theirs.path)(IMAGES)
        assert torch.equal(load_untrained(run.path).module(IMAGES), before)
        assert not torch.equal(load_encoder(run.path)(IMAGES), before)
    facts = json.loads(run.provenance.read_text())
    description = load(theirs.path).description
    assert facts["started_from"].pop("fingerprint")
    assert facts["started_from"] == description
    recorded = configuration_of(run)
    assert recorded.encoder.weights == str(theirs.path)
    assert recorded.encoder.stem_stride == 2
    encoder = load_encoder(theirs.path)  # other weights are not those it started from
    with torch.no_grad():
        next(encoder.parameters()).add_(0.1)
    save_encoder(encoder, theirs.encoder)
    with pytest.raises(UserError, match=r"untrained: .* changed since .* started"):
        load_untrained(run.path)


def test_it_continues_without_the_weights(tiny: Configure, theirs: RunFolder) -> None:
    weights = theirs.path.parent / "moved.safetensors"
    save_encoder(load_encoder(theirs.path), weights)
    config = tiny(epochs=2, encoder={"weights": str(weights)})
    run = mast.pretrain(config)
    content = run.encoder.read_bytes()
    for file in (weights, run.encoder, run.embedding):
        file.unlink()
    mast.pretrain(change(config, {"data.max_broken": 0.5}))  # which changes nothing here
    assert run.encoder.read_bytes() == content
    assert json.loads(run.provenance.read_text())["started_from"]["size"] == 32
    with pytest.raises(UserError, match=r"no encoder at .*moved\.safetensors"):
        load_untrained(run.path)


@pytest.mark.parametrize("option", ["freeze", "freeze_statistics"])
def test_what_is_frozen_stays_as_it_is(tiny: Configure, theirs: RunFolder, option: str) -> None:
    config = tiny(epochs=1, encoder={"weights": str(theirs.path), option: True})
    run = mast.pretrain(config)
    after, before = (load_encoder(each.path).state_dict() for each in (run, theirs))
    stay = [name for name, value in before.items() if torch.equal(after[name], value)]
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    assert stay == [name for name in before if option == "freeze" or name.endswith(statistics)]
    random = build_method(configuration_of(run)).state_dict()
    trained = mast.load_method(run.path).state_dict()
    name = "projector.trunk.0.weight"
    assert not torch.equal(trained[name], random[name])


@pytest.mark.parametrize("recipe", ["mast_c5_small", "byol_small"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_lora(tiny: Configure, tmp_path: Path, architecture: EncoderConfig, recipe: str) -> None:
    """Matrices and kernels change by a low rank, and nothing else does, also when resumed."""
    source, weights = Encoder(architecture, 32).eval(), tmp_path / "encoder.safetensors"
    save_encoder(source, weights)
    config = tiny(recipe, epochs=1, encoder={"weights": str(weights), "lora": 2})
    run = mast.pretrain(config)
    learned, content = load_encoder(run.path), run.encoder.read_bytes()
    before = source.state_dict()
    for key, after in learned.state_dict().items():
        if after.ndim == 4 or (after.ndim == 2 and key.endswith("weight")):
            assert torch.linalg.matrix_rank((after - before[key]).flatten(1), rtol=1e-3) in (1, 2)
        elif not key.endswith(("running_mean", "running_var", "num_batches_tracked")):
            assert torch.equal(after, before[key]), key
    mast.load_method(run.path)
    run.encoder.unlink()
    with torch.no_grad():  # of the checkpoint
        torch.testing.assert_close(mast.load_method(run.path).encoder(IMAGES), learned(IMAGES))
    mast.pretrain(config)
    assert run.encoder.read_bytes() == content


@torch.no_grad()
def test_lora_of_attention() -> None:
    """Also of PyTorch's, whose matrices are parameters of its own; merged, it gives the same."""
    plain, attention = (nn.MultiheadAttention(8, 2).eval() for _ in range(2))
    add_lora(attention, rank=2, seed=0)
    trained = [each for each in attention.parameters() if each.requires_grad]
    assert sorted(each.shape for each in trained) == [(2, 8), (2, 8), (8, 2), (24, 2)]
    for parameter in trained:
        nn.init.normal_(parameter)
    plain.load_state_dict(merged(attention.state_dict()))
    words = [torch.rand(2, 3, 8)] * 3
    torch.testing.assert_close(plain(*words)[0], attention(*words)[0])


@torch.no_grad()
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_views_of_another_size(
    tiny: Configure, tmp_path: Path, architecture: EncoderConfig
) -> None:
    """What 32 pixels decided is kept: the stride of the stem, positions, how images are scaled."""
    source = Encoder(architecture, 32).eval()
    save_encoder(source, tmp_path / "encoder.safetensors")
    config = tiny(size=48, encoder={"weights": str(tmp_path / "encoder.safetensors")})
    config, encoder = started(config)
    assert encoder.size == 48
    assert encoder.config.normalization == architecture.normalization
    assert encoder(torch.rand(2, 3, 48, 48)).shape == (2, source.dim)
    torch.testing.assert_close(encoder(IMAGES), source(IMAGES))
    copy = tmp_path / "copy.safetensors"
    save_encoder(encoder, copy)
    assert torch.equal(load_encoder(copy)(IMAGES), encoder(IMAGES))


def test_weights_are_read_as_they_were_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The padding of solo-learn's stems is kept, in a teacher, too; another range is said."""
    source = Encoder(replace(ENCODER, stem_padding=2), 32).eval()
    source.reading = Reading(Layout(3, deep=True), (0.0,), (4095.0,))
    save_encoder(source, tmp_path / "encoder.safetensors")
    (tmp_path / "photos" / "train").mkdir(parents=True)
    for at in range(16):
        values = np.random.default_rng(at).integers(0, 900, (32, 32, 3), dtype=np.uint16)
        np.save(tmp_path / "photos" / "train" / f"{at}.npy", values)
    weights = {"weights": str(tmp_path / "encoder.safetensors"), "freeze": True}
    config = configure(tmp_path / "photos", tmp_path / "run", "byol_small", encoder=weights)
    run = mast.pretrain(config)
    assert "the weights were trained with values 0 to 4095 as 0 to 1" in capsys.readouterr().out
    method = mast.load_method(run.path)
    with torch.no_grad():
        for encoder in (load_encoder(run.path), method.encoder, method.teacher.encoder):
            torch.testing.assert_close(encoder(IMAGES), source(IMAGES))


def test_the_configuration_counts_where_a_file_says_nothing(
    tiny: Configure, tmp_path: Path
) -> None:
    """A state dict has no normalisation; a name with a tag, beside a file, has one."""
    vit = {"depth": 2, "embed_dim": 24, "patch_size": 8}
    for name, options in (("timm:resnet18", ENCODER.options), ("timm:vit_tiny_patch16_224", vit)):
        source = Encoder(EncoderConfig(name, options), 32).eval()
        torch.save(source.model.state_dict(), tmp_path / "weights.pth")
        asked = {"options": options, "weights": str(tmp_path / "weights.pth")}
        config, encoder = started(tiny(encoder={"name": name, **asked, **DARK}))
        assert encoder.config.normalization == (DARK["mean"], DARK["std"])
        assert config.encoder.name == name
        assert all(
            torch.equal(encoder.model.state_dict()[key], value)
            for key, value in source.model.state_dict().items()
        )
    tagged = {"name": f"{name}.augreg_in21k", **asked}
    with pytest.raises(UserError, match=r"encoder.mean: expected \[0.5, 0.5, 0.5\], .* trained"):
        with_architecture(tiny(encoder={**tagged, **DARK}))
    config = with_architecture(tiny(encoder=tagged))
    description = start(build_method(config), config)
    assert description is not None
    assert description["normalization"] == {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    assert config.encoder.name == name


# ----------------------------------------------------------------- images of other channels

FIVE = {"mean": (0.1, 0.2, 0.3, 0.4, 0.5), "std": (0.5, 0.4, 0.3, 0.2, 0.1)}
OF_FIVE: dict[str, Any] = {"data.channels": 5}


def test_weights_of_rgb_start_a_run_of_other_channels(
    tiny: Configure, theirs: RunFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The moments are the run's own, and all but the first layer is that of the weights."""
    torch.save(load_encoder(theirs.path).model.state_dict(), tmp_path / "file.pth")
    file = {"weights": str(tmp_path / "file.pth"), "options": ENCODER.options, "stem_stride": 2}
    usual = usual_normalization(5)._asdict()
    for asked in ({"weights": str(theirs.path)}, {"name": "timm:resnet18", **file}):
        for moments in (FIVE, usual):
            config = with_architecture(tiny(encoder={**asked, **moments}, **OF_FIVE))
            assert config.encoder.normalization._asdict() == moments
            method = build_method(config)
            description = start(method, config)
            assert description is not None
            assert description["normalization"] == moments
            ours = method.encoder.model.state_dict()
            for key, value in load_encoder(theirs.path).model.state_dict().items():
                expected = value[:, [0, 1, 2, 0, 1]] * 3 / 5 if key == "conv1.weight" else value
                torch.testing.assert_close(ours[key], expected)
    said = {record.message for record in caplog.records}
    assert any("repeated over 5 channels" in line for line in said)


def test_weights_of_other_channels_start_runs_of_as_many(tiny: Configure, tmp_path: Path) -> None:
    source = Encoder(replace(ENCODER, **FIVE), 32).eval()
    weights = tmp_path / "encoder.safetensors"
    save_encoder(source, weights)
    config, encoder = started(tiny(encoder={"weights": str(weights)}, **OF_FIVE))
    assert config.encoder.normalization._asdict() == FIVE
    images_BCHW = torch.rand(2, 5, 32, 32)
    with torch.no_grad():
        assert torch.equal(encoder(images_BCHW), source(images_BCHW))
    with pytest.raises(UserError, match="expected 4 channels or RGB, got 5"):
        with_architecture(tiny(encoder={"weights": str(weights)}, **{"data.channels": 4}))


def test_the_encoder_has_its_own_rate(tiny: Configure) -> None:
    config = tiny(optimizer={"name": "adamw", "lr": 1.0, "encoder_rate": 0.2}, batch_size=256)
    method = build_method(config)
    optimizer = make_optimizer(parameter_groups(method, config), config.optimizer, 256)
    own = {*method.encoder.parameters()}
    rates = {
        (parameter in own, group["peak_lr"])
        for group in optimizer.param_groups
        if group["name"] != "gates"
        for parameter in group["params"]
    }
    assert rates == {(True, 0.2), (False, 1.0)}


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ({"freeze": True}, "encoder.freeze: expected encoder.weights with it, got none"),
        ({"lora": 4}, "encoder.lora: expected encoder.weights with it, got none"),
        ({"weights": "RUN", "lora": 0}, "encoder.lora: expected a rank from 1, .* got rank 0"),
        ({"weights": "resnet18"}, "expected a file, a run folder or a timm name with a tag"),
        ({"weights": "timm:resnt18.a1_in1k"}, r"such as timm:resnet18\.a1_in1k or "),
        ({"weights": "features.npz"}, "expected an encoder, got the features"),
        ({"weights": "runs/none"}, "no encoder at runs/none"),
        ({"weights": "RUN", "name": "resnet50"}, "expected 'timm:resnet18', .*, got 'resnet50'"),
        ({"weights": "RUN", "stem": "standard"}, "expected small, .*, got standard"),
        ({"weights": "RUN", "stem_stride": 1}, "stem_stride: expected 2, .*, got 1"),
        ({"weights": "RUN", "mean": [0.5] * 3}, r"mean: expected \[0.485, .*, got \[0.5, "),
        ({"weights": "RUN", "options": {"channels": [8] * 4}}, r"do not fit .* options .*\[8, 8, "),
    ],
)
def test_what_is_no_start(
    tiny: Configure, theirs: RunFolder, encoder: dict[str, Any], message: str
) -> None:
    if encoder.get("weights") == "RUN":
        encoder = {**encoder, "weights": str(theirs.path)}
    elif encoder.get("weights") == "features.npz":
        np.savez(theirs.path / "features.npz", features=np.eye(2), paths=["a", "b"])
        encoder = {"weights": str(theirs.path / "features.npz")}
    with pytest.raises(UserError, match=message):
        mast.pretrain(tiny(encoder=encoder))
