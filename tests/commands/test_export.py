"""`mast export`: what is kept, what is refused, the model card and the Hub."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

import mast
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.evaluation.result import readable
from mast.exports import FORMATS, Place, libraries, load_original
from mast.models import (
    Encoder,
    EncoderConfig,
    load_encoder,
    save_encoder,
)

NARROW = EncoderConfig("timm:resnet18", {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An encoder that is in no run."""
    save_encoder(Encoder(NARROW, 96).eval(), tmp_path / "kept" / "mine.safetensors")
    return tmp_path / "kept" / "mine.safetensors"


def test_an_encoder_by_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(file), "--format", "timm"]) == 0
    said, line = capsys.readouterr().out.splitlines()
    folder = file.parent.resolve() / "mine-timm"
    odd = r"\S+ for images of odd shapes, prepared as in README\.md"
    assert re.fullmatch(rf"{folder}: features within \S+ of the encoder's, {odd}", said)
    names: dict[str, Any] = {}
    exec(line, names)
    encoder = load_encoder(file)
    images = torch.rand(2, 3, 96, 96)
    with torch.inference_mode():
        given = names["model"]((images - encoder.mean) / encoder.std)
        torch.testing.assert_close(given, encoder(images))
    assert main(["export", str(file), "--format", "timn"]) == 2
    assert "Did you mean 'timm'" in capsys.readouterr().err


def test_nothing_of_others_is_replaced(file: Path, tmp_path: Path) -> None:
    assert mast.export(file, "timm").folder == (file.parent / "mine-timm").resolve()
    (tmp_path / "theirs").mkdir(mode=0o700)
    for _ in range(2):  # into an empty folder, and in the place of the first
        mast.export(file, "timm", tmp_path / "theirs")
    assert stat.S_IMODE((tmp_path / "theirs").stat().st_mode) == 0o700
    with pytest.raises(UserError, match="is an export as timm; choose another out"):
        mast.export(file, "hf", tmp_path / "theirs")
    listing = tmp_path / "theirs" / "mast.json"
    known = json.loads(listing.read_text())
    listing.write_text(json.dumps({**known, "files": [*known["files"], "precious"]}))
    (tmp_path / "theirs" / "precious").mkdir()  # which is listed, and no file
    with pytest.raises(UserError, match="holds precious, which no export wrote"):
        mast.export(file, "timm", tmp_path / "theirs")
    (tmp_path / "theirs" / "mast.json").write_text("[]")
    (tmp_path / "note.txt").write_text("mine")
    for out in (tmp_path / "theirs", tmp_path / "note.txt"):
        with pytest.raises(UserError, match="is no export; choose another out"):
            mast.export(file, "timm", out)
    assert (tmp_path / "note.txt").read_text() == "mine"


def test_an_export_that_differs_is_not_kept(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "outs" / "one"
    mast.export(file, "timm", out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    write = libraries.write_weights

    def otherwise(encoder: Encoder, folder: Path) -> None:
        with torch.no_grad():
            encoder.model.conv1.weight[0] *= 1.5
        write(encoder, folder)

    monkeypatch.setattr(libraries, "write_weights", otherwise)
    for place in (out, tmp_path / "outs" / "two"):
        with pytest.raises(
            UserError, match=r"as timm differ from the encoder's by .*nothing was kept"
        ):
            mast.export(file, "timm", place)
    assert [path.name for path in out.parent.iterdir()] == ["one"]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_classifier_is_exported_by_its_file(
    run: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted = mast.fit(run, photos, settings={"penalties": [1.0]})
    assert main(["export", str(fitted.path)]) == 0
    said, line = capsys.readouterr().out.splitlines()
    folder = run.resolve() / "exports" / f"{fitted.path.stem}-pt2"
    odd = r"\S+ for images of odd shapes, prepared as in README\.md"
    assert re.fullmatch(rf"{folder}: probabilities within \S+ of the classifier's, {odd}", said)
    names: dict[str, Any] = {}
    exec(line, names)
    images = torch.rand(3, 3, 32, 32)
    with torch.inference_mode():
        given = names["model"](images)
        torch.testing.assert_close(given, fitted.classifier.predict(images).probability_BC)
    text = (folder / "README.md").read_text()
    assert front_of(text)["pipeline_tag"] == "image-classification"
    assert f"# {fitted.path.stem}\n" in text
    assert "\n3 classes, in the order of the probabilities: class0, class1, class2.\n" in text
    images_told = f"72 images of {readable(str(photos))} (48 in train and 24 in val)"
    assert f"| images | {images_told} |" in text
    assert "| kind | linear: " in text
    _, accuracy, probabilities, *_ = fitted.text.splitlines()
    right, off = (told.partition(": ")[2] for told in (accuracy, probabilities))
    assert f"| right (95 % interval) | {right} |" in text
    assert f"| probabilities | {off} |" in text
    assert "## Pretraining of the encoder\n" in text
    assert "| recipe | mast5_small |" in text
    assert "a test set was not looked at" in text
    assert str(photos.parent.parent) not in text  # no paths
    with pytest.raises(UserError, match="a classifier has its features"):
        mast.export(fitted.path, "pt2", ignore="color")


def test_which_classifier_cannot_be_exported(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"penalties": [1.0]}
    path = mast.fit("timm:test_resnet", photos, size=32, settings=settings).path
    with pytest.raises(UserError, match=f"holds no encoder; .*: `mast export {path}`"):
        mast.export(path.parent, "pt2")
    corners = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())
    own = mast.fit(corners, photos, size=32, settings=settings).path
    with pytest.raises(UserError, match="a module of its own, whose code is in no file"):
        mast.export(own, "pt2")


def front_of(text: str) -> dict[str, Any]:
    _, front, _ = text.split("---\n", 2)
    return yaml.safe_load(front)


def card_of(run: Path, monkeypatch: pytest.MonkeyPatch, **options: str) -> str:
    """What an export would say, without the time that one takes."""
    texts: list[str] = []
    monkeypatch.setattr("mast.commands.export.export_folder", lambda *given: texts.append(given[4]))
    mast.export(run, "pt2", **options)
    return texts[0]


def test_the_card_says_what_the_run_says(
    run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (result,) = mast.evaluate(run, str(photos), "knn")
    text = card_of(run, monkeypatch, license="cc-by-4.0")
    assert front_of(text) == {
        "pipeline_tag": "image-feature-extraction", "license": "cc-by-4.0",
        "tags": ["image-feature-extraction", "self-supervised-learning", "pytorch"],
    }  # fmt: skip
    provenance = RunFolder(run).read_provenance()
    assert f"| images | {provenance['data']['images']} of" in text
    assert "| recipe | mast5_small |" in text
    last = json.loads(RunFolder(run).metrics.read_text().splitlines()[-1])
    assert f"| steps | {last['step']} |" in text
    values = result.targets["class"].values
    row = f"| {values['top1']:.1f} | {values['top1_low']:.1f} to {values['top1_high']:.1f} |"
    assert f"| 24 | class | top-1 {row}" in text
    assert "stem a 3x3 convolution of stride 2 without max-pooling" in text
    assert "Trained for images of 32 × 32 pixels, and measured at 32." in text
    (missing,) = re.findall("Protocols that were not run: (.*)\\.", text)
    assert "linear" in missing.split(", ")
    assert not {"knn", "ensemble"} & set(missing.split(", "))
    result.encoder["fingerprint"] = "0" * 64
    result.write(run)  # a result of another encoder
    other = card_of(run, monkeypatch)
    assert "Nothing was measured of this encoder yet." in other
    assert "license" not in front_of(other)
    assert str(photos.parent.parent) not in text  # no paths


class FakeHub:
    """What `huggingface_hub.HfApi` would have been asked."""

    asked: list[tuple[Any, ...]]
    fails = False

    def create_repo(self, repository: str, exist_ok: bool) -> str:
        if self.fails:
            raise ConnectionError("Name or service not known\nand more")
        self.asked.append(("create", repository, exist_ok))
        return f"https://huggingface.co/{repository}"

    def upload_folder(self, repo_id: str, folder_path: Path, commit_message: str) -> None:
        text = (folder_path / "README.md").read_text()
        files = sorted(file.name for file in folder_path.iterdir())
        self.asked.append(("upload", repo_id, files, commit_message, text))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> type[FakeHub]:
    monkeypatch.setattr("huggingface_hub.HfApi", FakeHub)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_token")
    monkeypatch.setattr(FakeHub, "asked", [], raising=False)
    return FakeHub


def test_pushing(file: Path, hub: type[FakeHub], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", str(file), "--format", "hf", "--push", "me/flowers", "--license", "mit"]
    assert main(words) == 0
    assert "https://huggingface.co/me/flowers\n" in capsys.readouterr().out
    (created, (_, repository, files, message, text)) = hub.asked
    assert created == ("create", "me/flowers", True)
    assert repository == "me/flowers"
    assert files == ["README.md", "config.json", "mast.json", "model.safetensors"]
    assert message == "Upload the encoder"
    assert front_of(text)["license"] == "mit"
    assert "transformers.AutoModel.from_pretrained('me/flowers')" in text
    assert "In this folder" not in text
    line = FORMATS["timm"].kind(load_original(file)).line(Place("me/flowers", on_hub=True))
    assert "create_model('hf-hub:me/flowers'" in line


def test_what_cannot_be_pushed(
    file: Path, hub: type[FakeHub], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="as OWNER/NAME, got 'flowers'"):
        mast.export(file, "timm", push="flowers")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(UserError, match="pushing needs a token"):
        mast.export(file, "timm", push="me/flowers")
    assert not (file.parent / "mine-timm").exists()  # refused before anything is written
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_token")
    monkeypatch.setattr(hub, "fails", True)
    with pytest.raises(UserError, match=r"cannot push .*Name or service not known\); .* is whole"):
        mast.export(file, "timm", push="me/flowers")
    assert (file.parent / "mine-timm").is_dir()
