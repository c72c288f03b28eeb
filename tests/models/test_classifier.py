"""A classifier and its file: what is written is read, and what does not fit is one line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import ENCODER
from torch import nn

import mast
from mast.core.errors import UserError
from mast.core.tensors import read_metadata, read_tensors, write_tensors
from mast.models import Classifier, Encoder
from mast.models.classifier import classifier_file, save_classifier

IMAGES = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
CLASSES = ("ant", "bee", "=cat")


def classifier(encoder: nn.Module, dim: int) -> Classifier:
    torch.manual_seed(0)
    about = {"target": "class", "settings": {"lr": 0.1}}
    return Classifier(encoder, nn.Linear(dim, 3), CLASSES, 32, 0.5, about).eval()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    encoder = Encoder(replace(ENCODER, mean=(0.1,) * 3, std=(0.3,) * 3, stem_padding=2), 32)
    before = classifier(encoder, encoder.dim)
    file = tmp_path / "classifier-a.safetensors"
    save_classifier(before, file)
    for path in (file, tmp_path, str(file)):
        after = mast.load_classifier(path)
        assert torch.equal(after(IMAGES), before(IMAGES))
    assert (after.classes, after.size, after.temperature) == (CLASSES, 32, 0.5)
    assert after.about == before.about
    assert after.encoder.describe() == encoder.describe()
    assert not after.training


def test_predictions_are_those_of_the_probabilities() -> None:
    encoder = Encoder(ENCODER, 32)
    ours = classifier(encoder, encoder.dim)
    predicted = ours.predict(IMAGES)
    expected = (ours.head(encoder(IMAGES)) / 0.5).softmax(dim=1)
    torch.testing.assert_close(predicted.probability_BC, expected)
    assert predicted.classes == tuple(CLASSES[at] for at in expected.argmax(dim=1))
    ordered = expected.sort(dim=1, descending=True).values
    torch.testing.assert_close(predicted.probability_B, ordered[:, 0])
    torch.testing.assert_close(predicted.margin_B, ordered[:, 0] - ordered[:, 1])
    for wrong in (IMAGES[0], IMAGES[:, :1]):
        with pytest.raises(UserError, match=r"expected .*\(B, ., H, W\), got"):
            ours.predict(wrong)
    with pytest.raises(UserError, match="divide values of 0 to 255 by 255"):
        ours.predict((255 * IMAGES).byte())


def test_no_class_is_named_by_probabilities_that_are_no_numbers() -> None:
    ours = classifier(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4)), 4)
    with pytest.raises(UserError, match="got values from nan"):
        ours.predict(torch.where(IMAGES > 0.9, torch.nan, IMAGES))
    with torch.no_grad():
        ours.head.bias[0] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        ours.predict(IMAGES)


class Versioned(nn.Flatten):
    """A state that is no tensor."""

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 1}

    def set_extra_state(self, state: object) -> None:
        pass


def test_a_module_of_ones_own_gets_its_weights_back(tmp_path: Path) -> None:
    def module() -> nn.Module:
        return nn.Sequential(Versioned(), nn.Linear(3 * 32 * 32, 4))

    before = classifier(module(), 4)
    file = tmp_path / "classifier-a.safetensors"
    save_classifier(before, file)
    with pytest.raises(UserError, match=r"load it in Python with mast\.load_classifier\(path, enc"):
        mast.load_classifier(file)
    with pytest.raises(UserError, match="describes no classifier"):
        mast.load_classifier(file, nn.Linear(2, 2))
    mine = module()
    weights = {name: tensor.clone() for name, tensor in mine[1].state_dict().items()}
    after = mast.load_classifier(file, mine)
    assert torch.equal(after(IMAGES), before(IMAGES))
    assert torch.equal(after(IMAGES.double()), before(IMAGES))
    assert mine.training
    assert all(weights[name].equal(now) for name, now in mine[1].state_dict().items())
    save_classifier(classifier(torch.compile(module(), backend="eager"), 4), file)
    assert mast.load_classifier(file, torch.compile(mine, backend="eager")).classes == CLASSES


def test_files_that_do_not_fit_are_one_line(tmp_path: Path) -> None:
    encoder = Encoder(ENCODER, 32)
    for path in (tmp_path, tmp_path / "none.safetensors"):
        with pytest.raises(UserError, match=r"no classifier at .*: `mast fit` writes one"):
            mast.load_classifier(path)
    mast.models.save_encoder(encoder, tmp_path / "encoder.safetensors")
    with pytest.raises(UserError, match="its header names no classifier"):
        mast.load_classifier(tmp_path / "encoder.safetensors")
    for name in ("a", "b"):
        save_classifier(
            classifier(encoder, encoder.dim), tmp_path / f"classifier-{name}.safetensors"
        )
    commands = " or ".join(
        f"`mast predict FOLDER --classifier {tmp_path}/classifier-{name}.safetensors`"
        for name in "ab"
    )
    with pytest.raises(UserError, match=f"one classifier in {tmp_path}, got 2: {commands}$"):
        classifier_file(tmp_path)
    file = tmp_path / "classifier-a.safetensors"
    with pytest.raises(UserError, match="is a classifier, for `mast predict`"):
        mast.load_encoder(file)
    content = bytearray(file.read_bytes())
    for at in (-10, 200):
        damaged = bytearray(content)
        damaged[at] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=r"is damaged.*`mast fit` again"):
            mast.load_classifier(file)


@pytest.mark.parametrize(
    ("classes", "temperature"), [(("a", "b"), 1.0), (("a", "b", "a"), 1.0), (CLASSES, float("nan"))]
)
def test_parts_fit_together(classes: tuple[str, ...], temperature: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        Classifier(nn.Identity(), nn.Linear(2, 3), classes, 8, temperature)


@pytest.mark.parametrize(
    "changes",
    [
        {"classes": [1, 2, 3]}, {"classes": "abc"}, {"size": 10**9}, {"temperature": 0},
        {"about": 3},
    ],
    ids=lambda changes: "-".join([*changes, str(changes)[-12:]]),
)  # fmt: skip
def test_an_absurd_header_is_one_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    encoder = Encoder(ENCODER, 32)
    file = tmp_path / "classifier-a.safetensors"
    save_classifier(classifier(encoder, encoder.dim), file)
    tensors, header = read_tensors(file)
    described = read_metadata(header)
    described["classifier"] |= changes
    write_tensors(file, tensors, described)
    with pytest.raises(UserError, match=r"classifier-a\.safetensors") as caught:
        mast.load_classifier(file)
    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)
