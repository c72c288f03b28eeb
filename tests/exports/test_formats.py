"""Exports of encoders and classifiers in every format, loaded by processes that have no `mast`."""

import ast
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from exported import HALF, INSTALLED, NARROW, Case, load_in_a_fresh_process, outputs, pictures_of
from PIL import Image
from tiny import scrambled
from torch import nn

import mast
from mast.core.errors import UserError
from mast.exports import FORMATS, libraries
from mast.exports.original import Original
from mast.models import Classifier, Encoder, EncoderConfig, load_encoder, save_encoder
from mast.models.classifier import save_classifier

CLASSES = ("rose", "iris", "snow|drop", "Gänseblümchen", "e")
KINDS = ("encoder", "classifier")


def classifier_of(encoder: Encoder, temperature: float = 0.5) -> Classifier:
    head = nn.Linear(encoder.dim, len(CLASSES))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        head.weight.normal_(0.0, 0.1, generator=generator)
    return Classifier(encoder, head, CLASSES, encoder.size, temperature).eval()


def separating(classifier: Classifier, pictures: list[str]) -> Classifier:
    """With a head to which two images are opposite, as far as is good for a comparison."""
    features_2D = outputs(classifier.encoder, pictures)
    away_D = features_2D[0] - features_2D[1]
    with torch.no_grad():
        classifier.head.weight /= (classifier.head.weight @ away_D).abs().max()
        classifier.head.bias.copy_(-classifier.head.weight @ features_2D.mean(dim=0))
    return classifier


def saved(folder: Path, model: Encoder | Classifier) -> Path:
    folder.mkdir(exist_ok=True)
    if isinstance(model, Encoder):
        save_encoder(model, folder / "encoder.safetensors")
        return folder / "encoder.safetensors"
    save_classifier(model, folder / "classifier-linear-mine.safetensors")
    return folder / "classifier-linear-mine.safetensors"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Case]:
    """A function that exports an encoder or a classifier in a format, once."""
    root = tmp_path_factory.mktemp("exports")

    @cache
    def models() -> tuple[dict[str, Encoder | Classifier], list[str]]:
        pictures = pictures_of(root / "pictures", 96)
        encoder = scrambled(Encoder(replace(NARROW, mean=HALF.mean, std=HALF.std), 96))
        classifier = separating(classifier_of(encoder), pictures)
        return {"encoder": encoder, "classifier": classifier}, pictures

    @cache
    def export(kind: str, name: str) -> Case:
        both, pictures = models()
        file = saved(root / kind, both[kind])
        return Case(mast.export(file, name), both[kind], pictures)

    return export


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_process_without_mast_gets_the_same(
    exported: Callable[[str, str], Case], kind: str, tmp_path: Path
) -> None:
    cases = [exported(kind, name) for name in INSTALLED]
    output = "features" if kind == "encoder" else "probabilities"
    load_in_a_fresh_process(cases, output, tmp_path)
    for case in cases:
        expected_BC = outputs(case.module, case.pictures)
        assert expected_BC.std(dim=0).max() > 0.01  # two images differ
        for count in (2, 1):
            torch.testing.assert_close(
                case.theirs(count), expected_BC[:count], rtol=1e-3, atol=1e-4
            )
        if kind == "classifier":
            assert case.named(2) == [CLASSES[at] for at in expected_BC.argmax(dim=1)]
        assert case.exported.difference < 1e-4
        assert "\n" not in case.exported.line


@pytest.mark.skipif("onnx" not in INSTALLED, reason="needs the extra onnx")
@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_onnx_needs_onnxruntime_numpy_and_pillow_alone(
    exported: Callable[[str, str], Case], kind: str, tmp_path: Path
) -> None:
    """From images of odd shapes, which it resizes and crops itself."""
    case = exported(kind, "onnx")
    files = []
    for at, sides in enumerate([(150, 113), (97, 301)]):
        files.append(str(tmp_path / f"{at}.png"))
        Image.open(case.pictures[at]).resize(sides).save(files[-1])
    output = "features" if kind == "encoder" else "probabilities"
    torches = ("torch", "torchvision", "timm", "scipy", "huggingface_hub")
    load_in_a_fresh_process([case._replace(pictures=files)], output, tmp_path, *torches)
    with torch.inference_mode():
        expected_BC = case.module(mast.open_images(files, 96))
    torch.testing.assert_close(case.theirs(2), expected_BC, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("timm", "encoder"),
        ("timm", "classifier"),
        pytest.param("pt2", "classifier", marks=pytest.mark.slow),
    ],
)
def test_a_folder_has_the_format_the_classes_and_the_preprocessing(
    exported: Callable[[str, str], Case], name: str, kind: str
) -> None:
    folder = exported(kind, name).exported.folder
    files = {"model.safetensors"} if name != "pt2" else {f"{kind}.pt2"}
    files |= {"config.json"} if name == "timm" else set()
    if kind == "classifier" and name != "timm":
        files.add("classes.json")
        assert json.loads((folder / "classes.json").read_text()) == {
            "classes": list(CLASSES), "size": 96, "resized": 96,
            "normalization": "inside the model",
        }  # fmt: skip
    elif kind == "classifier":
        config = json.loads((folder / "config.json").read_text())
        assert config["label_names"] == list(CLASSES)
        assert config["num_classes"] == config["pretrained_cfg"]["num_classes"] == len(CLASSES)
    assert {file.name for file in folder.iterdir()} == files | {"README.md", "mast.json"}
    assert not [file for file in folder.parent.iterdir() if file.name.startswith(".")]
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert ("snow|drop, Gänseblümchen" in text) == (kind == "classifier")


@pytest.mark.parametrize("kind", KINDS)
def test_the_encoder_in_what_was_exported_is_evaluated(
    exported: Callable[[str, str], Case], kind: str
) -> None:
    case = exported(kind, "timm")
    encoder: Any = case.module if kind == "encoder" else case.module.encoder
    again = load_encoder(case.exported.folder / "model.safetensors")
    assert (again.size, again.config.normalization) == (encoder.size, HALF)
    images_BCHW = torch.rand(2, 3, encoder.size, encoder.size)
    with torch.inference_mode():
        assert torch.equal(again(images_BCHW), encoder(images_BCHW))


def test_a_vit_of_another_size(tmp_path: Path) -> None:
    config = EncoderConfig("timm:test_vit", {"embed_dim": 16, "num_heads": 2, "depth": 1})
    encoder = Encoder(config, 32).eval()
    exported = mast.export(saved(tmp_path, encoder), "timm")
    kept = json.loads((exported.folder / "config.json").read_text())
    assert kept["model_args"]["img_size"] == 32
    assert kept["pretrained_cfg"]["input_size"] == [3, 32, 32]


DEIT = EncoderConfig(
    "timm:deit_tiny_distilled_patch16_224", {"embed_dim": 16, "num_heads": 2, "depth": 1}
)


@pytest.mark.parametrize(
    ("config", "size", "message"),
    [
        (EncoderConfig("resnet18"), 32, "small stem.*onnx and pt2 hold any"),
        (EncoderConfig("alexnet"), 64, "no such model as 'alexnet'"),
        (DEIT, 32, "does not end in one linear layer"),  # of a classifier
    ],
)
def test_what_a_library_cannot_build_is_refused(
    config: EncoderConfig, size: int, message: str, tmp_path: Path
) -> None:
    encoder = Encoder(config, size).eval()
    file = saved(tmp_path, classifier_of(encoder) if config is DEIT else encoder)
    with pytest.raises(UserError, match=message):
        mast.export(file, "timm")
    assert [*tmp_path.iterdir()] == [file]


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
    head = libraries.scores_head

    def swapped(classifier: Classifier) -> nn.Linear:
        layer = head(classifier)
        order = [0, 2, 1, 3, 4]
        layer.load_state_dict({"weight": layer.weight[order], "bias": layer.bias[order]})
        return layer

    monkeypatch.setattr(libraries, "scores_head", swapped)
    with pytest.raises(UserError, match=r"as timm differ from the classifier's"):
        mast.export(file, "timm", tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_what_prepares_images_otherwise_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example that users copy is run on images of odd shapes."""
    file = saved(tmp_path, classifier_of(scrambled(Encoder(NARROW, 112))))
    monkeypatch.setattr(libraries, "crop_fraction", lambda size: 1.0)  # the whole short side
    with pytest.raises(UserError, match=r"as timm differ .* export was deleted"):
        mast.export(file, "timm", tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def test_the_manual_lists_every_format() -> None:
    manual = Path(__file__).parents[2] / "docs" / "use.md"
    assert re.findall(r"^\| `(\w+)` \|", manual.read_text(), re.MULTILINE) == list(FORMATS)


@pytest.mark.parametrize("name", INSTALLED)
def test_a_place_is_a_literal_whatever_it_is_called(name: str) -> None:
    form = FORMATS[name].kind(Original(Encoder(NARROW, 96).eval()))
    place = "a'); open('b', 'w'); (\"\n{x} \\"
    line = form.line(place)
    texts = [node.value for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Constant)]
    assert any(isinstance(text, str) and place in text for text in texts)
    assert "\n" not in line
