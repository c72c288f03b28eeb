"""Weights that names of timm name: found in its cache, normalised as they were trained."""

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

import mast
from mast.config import build_method
from mast.core.errors import UserError
from mast.encoders.load import load
from mast.models.encoders import IMAGENET, Normalization
from mast.models.pretrained import named_weights, normalization_of, weights_file
from mast.runs.start import start, with_architecture

TAGGED = "tf_mobilenetv3_small_minimal_100.in1k"  # normalised by 0.5
HALF = Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
CLIP = Normalization((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hugging Face Hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


def keep(hub: Path, weights: str) -> torch.nn.Module:
    """A model whose weights are in the cache, as timm keeps them."""
    torch.manual_seed(1)
    model = timm.create_model(weights).eval()
    folder = hub / f"models--timm--{weights}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    (folder / "snapshots" / ("0" * 40)).mkdir(parents=True)
    save_file(model.state_dict(), folder / "snapshots" / ("0" * 40) / "model.safetensors")
    return model


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("timm:resnet18.a1_in1k", "resnet18.a1_in1k"),
        ("vit_small_patch16_224_dino", "vit_small_patch16_224.dino"),  # as timm once called them
        ("resnet18", None),
        ("flowers.v2", None),
    ],
)
def test_names_that_name_weights(name: str, weights: str | None) -> None:
    assert named_weights(name) == weights


def test_normalizations() -> None:
    assert normalization_of("timm:resnet18.a1_in1k") == IMAGENET == normalization_of("resnet18")
    assert normalization_of(f"timm:{TAGGED.partition('.')[0]}") == HALF  # as timm's own weights
    assert normalization_of(f"timm:{TAGGED}") == HALF
    assert normalization_of("timm:vit_base_patch16_clip_224.openai") == CLIP


def test_weights_of_the_cache_are_loaded_and_normalised_as_trained(hub: Path) -> None:
    model = keep(hub, TAGGED)
    loaded = load(f"timm:{TAGGED}", size=64)
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        tokens = model.forward_features(2 * images - 1)
        expected = model.forward_head(tokens, pre_logits=True)
        torch.testing.assert_close(loaded.module(images), expected)
    assert loaded.description["normalization"] == {"mean": HALF.mean, "std": HALF.std}
    assert loaded.folder.name[:-6] == "tf_mobilenetv3_small_min-"  # and digits
    assert load(f"timm:{TAGGED}", size=64, seed=1).folder == loaded.folder  # nothing is drawn


@pytest.mark.parametrize(
    ("file", "described", "expected"),
    [
        ("config.json", {"pretrained_cfg": CLIP._asdict(), "architecture": "resnet18"}, CLIP),
        ("preprocessor_config.json", {"image_mean": CLIP.mean, "image_std": CLIP.std}, CLIP),
        ("open_clip_config.json", {"preprocess_cfg": CLIP._asdict()}, CLIP),
        ("preprocessor_config.json", {"do_normalize": False}, Normalization((0,) * 3, (1,) * 3)),
        ("config.json", {"architectures": ["ResNet"]}, HALF),
    ],
)
def test_what_stands_beside_weights_normalizes_them(
    file: str, described: dict[str, Any], expected: Normalization, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    model = timm.create_model("test_resnet").eval()
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / file).write_text(json.dumps(described))
    loaded = load("timm:test_resnet", size=64, weights=tmp_path / "model.safetensors")
    said = capsys.readouterr().err
    assert (f"{tmp_path / file} says so" in said) == (expected is not HALF)
    assert f"mean {expected.mean[0]:g}, {expected.mean[1]:g}, " in said
    mean, std = (torch.tensor(moment)[:, None, None] for moment in expected)
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        features = model.forward_features((images - mean) / std)
        wanted = model.forward_head(features, pre_logits=True)
        torch.testing.assert_close(loaded.module(images), wanted, rtol=1e-4, atol=1e-5)
    tagged = load("timm:test_resnet.r160_in1k", weights=tmp_path / "model.safetensors")
    assert tagged.module.config.normalization == HALF  # as the tag says
    for damaged in ('{"image_mean": [0.5], "image_std": ["a"], "mean": [], "std": [0]}', "{"):
        (tmp_path / file).write_text(damaged)
        with pytest.raises(UserError, match=file):
            load("timm:test_resnet", size=64, weights=tmp_path / "model.safetensors")


def test_a_run_starts_from_weights_of_the_cache(hub: Path) -> None:
    model = keep(hub, TAGGED)
    config = mast.configure(encoder={"weights": f"timm:{TAGGED}"}, size=64)
    config = with_architecture(config)
    assert config.encoder.name == "timm:tf_mobilenetv3_small_minimal_100"
    assert config.encoder.normalization == HALF
    method = build_method(config)
    described = start(method, config)
    assert described is not None
    assert described["weights"]["file"] == "model.safetensors"
    found = method.encoder.model.state_dict()
    assert torch.equal(found["conv_stem.weight"], model.conv_stem.weight)


def test_weights_that_are_not_there_are_no_random_ones(hub: Path) -> None:
    there = "not in the cache .* give --download to fetch them, or a file as weights"
    with pytest.raises(UserError, match=there):
        load("timm:resnet18.a1_in1k")
    with pytest.raises(UserError, match=r"unknown weights 'resnet18\.a1_in2k'.*a1_in1k'\?"):
        load("timm:resnet18.a1_in2k")
    with pytest.raises(UserError, match=r"no run folder .*flowers\.v2.* here, and unknown encoder"):
        load("flowers.v2")
    assert not hub.exists()


def test_a_download_needs_permission(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def download(repository: str, file: str, revision: str | None, local_files_only: bool) -> str:
        requests.append((repository, file, revision, local_files_only))
        if not local_files_only:
            return "model.safetensors"
        raise FileNotFoundError

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    with pytest.raises(UserError, match="not in the cache"):
        weights_file("resnet18.a1_in1k")
    assert weights_file("resnet18.a1_in1k", download=True) == Path("model.safetensors")
    place = ("timm/resnet18.a1_in1k", "model.safetensors", None)
    assert requests == [(*place, True), (*place, False)]
