"""Exports of classifiers in every format, loaded by processes that have no `mast`."""

import json
from pathlib import Path

import pytest
import torch
from exported import (
    HALF,
    INSTALLED,
    NARROW,
    NEEDS,
    Case,
    load_in_a_fresh_process,
    normalised,
    outputs,
    pictures_of,
    scrambled,
)
from torch import nn

import mast
from mast.core.errors import UserError
from mast.exports import FORMATS, timm_folder
from mast.models import Classifier, Encoder, EncoderConfig, load_foreign, save_classifier

CLASSES = ("rose", "iris", "snow|drop", "Gänseblümchen", "e")


def classifier_of(encoder: Encoder, temperature: float = 0.5) -> Classifier:
    head = nn.Linear(encoder.dim, len(CLASSES))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        head.weight.normal_(0.0, 0.1, generator=generator)
    return Classifier(encoder, head, CLASSES, encoder.size, temperature).eval()


def told_apart(classifier: Classifier, pictures: list[str]) -> Classifier:
    """With a head to which two images are opposite, as far as is good for a comparison."""
    features_2D = outputs(classifier.encoder, pictures)
    away_D = features_2D[0] - features_2D[1]
    with torch.no_grad():
        classifier.head.weight /= (classifier.head.weight @ away_D).abs().max()
        classifier.head.bias.copy_(-classifier.head.weight @ features_2D.mean(dim=0))
    return classifier


def saved(folder: Path, classifier: Classifier) -> Path:
    folder.mkdir(exist_ok=True)
    save_classifier(classifier, folder / "classifier-linear-mine.safetensors")
    return folder / "classifier-linear-mine.safetensors"


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """An export of every format that can be loaded here, after a fresh process loaded it."""
    root = tmp_path_factory.mktemp("classifiers")
    found = {}
    for config, size, names in (
        (NARROW, 96, [name for name in INSTALLED if name != "torchvision"]),
        (EncoderConfig("resnet18", stem_stride=2), 32, ["torchvision"]),
    ):
        pictures = pictures_of(root / f"pictures{size}", size)
        encoder = scrambled(Encoder(normalised(config), size))
        classifier = told_apart(classifier_of(encoder), pictures)
        file = saved(root / str(size), classifier)
        for name in names:
            found[name] = Case(mast.export(file, name), classifier, pictures)
    load_in_a_fresh_process([*found.values()], "probabilities", root)
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_a_process_without_mast_gets_the_same_probabilities(
    cases: dict[str, Case], name: str
) -> None:
    if name not in cases:
        pytest.skip(f"{NEEDS[name]} is not installed")
    case = cases[name]
    expected_BC = case.ours()
    torch.testing.assert_close(expected_BC.sum(dim=1), torch.ones(2))
    assert expected_BC.std(dim=0).max() > 0.01  # two images differ
    assert expected_BC.std(dim=1).min() > 0.01  # and so do the classes
    for count in (2, 1):
        torch.testing.assert_close(case.theirs(count), expected_BC[:count], rtol=1e-3, atol=1e-3)
        assert case.named(count) == [CLASSES[at] for at in expected_BC[:count].argmax(dim=1)]
    assert case.exported.difference < 1e-4
    assert case.exported.text.startswith(f"{case.exported.folder}: probabilities within ")


def test_only_the_format_is_written(cases: dict[str, Case]) -> None:
    files = {
        "timm": {"config.json", "model.safetensors"}, "hf": {"config.json", "model.safetensors"},
        "torchvision": {"model.safetensors", "classes.json"},
        "pt2": {"classifier.pt2", "classes.json"}, "onnx": {"classifier.onnx", "classes.json"},
    }  # fmt: skip
    assert files.keys() == FORMATS.keys()
    for name, case in cases.items():
        folder = case.exported.folder
        assert folder.name == f"classifier-linear-mine-{name}"
        assert {file.name for file in folder.iterdir()} == files[name] | {"README.md", "mast.json"}


def test_classes_and_preprocessing_are_in_the_folder(cases: dict[str, Case]) -> None:
    for name, case in cases.items():
        folder = case.exported.folder
        assert "snow|drop, Gänseblümchen" in (folder / "README.md").read_text(encoding="utf-8")
        if name in ("timm", "hf"):
            said = json.loads((folder / "config.json").read_text())
            assert said["label_names"] == list(CLASSES)
            assert said["num_classes"] == said["pretrained_cfg"]["num_classes"] == len(CLASSES)
            continue
        size, inside = (32, False) if name == "torchvision" else (96, True)
        moments = {"mean": list(HALF.mean), "std": list(HALF.std)}
        assert json.loads((folder / "classes.json").read_text()) == {
            "classes": list(CLASSES), "size": size, "resized": size,
            "normalization": "inside the model" if inside else moments,
        }  # fmt: skip


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_the_encoder_in_what_was_exported_is_evaluated(cases: dict[str, Case], name: str) -> None:
    classifier = cases[name].module
    assert isinstance(classifier, Classifier)
    foreign = load_foreign(cases[name].exported.folder / "model.safetensors")
    assert set(foreign.left_out) == {"fc.weight", "fc.bias"}
    images_BCHW = torch.rand(2, 3, classifier.size, classifier.size)
    with torch.inference_mode():
        assert torch.equal(foreign.encoder(images_BCHW), classifier.encoder(images_BCHW))


def test_a_classifier_that_a_library_cannot_hold_is_refused(tmp_path: Path) -> None:
    tiny = {"embed_dim": 16, "num_heads": 2, "depth": 1}
    for config, size, name, message in (
        (EncoderConfig("resnet18"), 32, "timm", "no ResNet with a 3x3 stem and no max-pooling"),
        (NARROW, 96, "torchvision", "torchvision has no model with the weights of"),
        (
            EncoderConfig("timm:deit_tiny_distilled_patch16_224", tiny), 32, "timm",
            "does not end in one linear layer on its features.*onnx and pt2 hold any",
        ),
    ):  # fmt: skip
        file = saved(tmp_path, classifier_of(Encoder(config, size).eval()))
        with pytest.raises(UserError, match=message):
            mast.export(file, name)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_classifier_that_differs_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the images of the comparison are of one class for sure, so that the others show
    in the logarithms alone.
    """
    classifier = classifier_of(scrambled(Encoder(NARROW, 96)), temperature=0.5)
    with torch.no_grad():
        classifier.head.bias[0] += 15
    file = saved(tmp_path, classifier)
    with torch.inference_mode():
        assert classifier(torch.rand(2, 3, 96, 96))[:, 1:].max() < 1e-5
    assert mast.export(file, "timm", tmp_path / "right").difference < 1e-6
    head = timm_folder.scores_head

    def swapped(given: Classifier) -> nn.Linear:
        layer = head(given)
        order = [0, 2, 1, 3, 4]
        layer.load_state_dict({"weight": layer.weight[order], "bias": layer.bias[order]})
        return layer

    monkeypatch.setattr(timm_folder, "scores_head", swapped)
    with pytest.raises(UserError, match="as timm differ from the classifier's"):
        mast.export(file, "timm", tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_a_classifier_that_says_nothing_of_itself_is_one_line(tmp_path: Path) -> None:
    classifier = classifier_of(Encoder(NARROW, 96))
    classifier.about = {"kind": "linear", "encoder": ["x"]}
    with pytest.raises(UserError, match="does not say what it learned from"):
        mast.export(saved(tmp_path, classifier), "pt2")


def test_what_prepares_images_otherwise_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example that users copy is run on images of odd shapes, with their canvases between."""
    classifier = classifier_of(scrambled(Encoder(NARROW, 112)))
    with torch.no_grad():
        classifier.head.weight *= 30
    file = saved(tmp_path, classifier)
    exported = mast.export(file, "pt2", tmp_path / "right")
    assert exported.prepared is not None
    assert exported.prepared < 1e-5
    monkeypatch.setattr("mast.exports.format.resized", lambda size: size)  # the whole short side
    with pytest.raises(UserError, match="for images of odd shapes; nothing was kept"):
        mast.export(file, "pt2", tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()
