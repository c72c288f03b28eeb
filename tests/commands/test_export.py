"""`mast export`: what is kept, what is refused, the model card and the Hub."""

import re
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from exported import NARROW

import mast
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.models import Encoder, save_encoder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An encoder that is in no run."""
    save_encoder(Encoder(NARROW, 96).eval(), tmp_path / "kept" / "mine.safetensors")
    return tmp_path / "kept" / "mine.safetensors"


def test_nothing_of_others_is_replaced(file: Path, tmp_path: Path) -> None:
    assert mast.export(file, "timm").folder == (file.parent / "mine-timm").resolve()
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    for _ in range(2):  # into an empty folder, and in the place of the first
        mast.export(file, "timm", theirs)
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o700
    with pytest.raises(UserError, match="has another format, timm; choose another"):
        mast.export(file, "pt2", theirs)
    (theirs / "precious").mkdir()
    with pytest.raises(UserError, match=r"that `mast export` wrote; .* has precious"):
        mast.export(file, "timm", theirs)
    (theirs / "precious").rmdir()
    (theirs / "mast.json").write_text("[]")
    with pytest.raises(UserError, match=r"wrote; .* has "):
        mast.export(file, "timm", theirs)


def test_a_classifier_is_exported_by_its_file(
    run: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted = mast.fit(photos, run, settings={"penalties": [1.0]})
    assert main(["export", str(fitted.path)]) == 0
    said, line = capsys.readouterr().out.splitlines()
    folder = run.resolve() / "exports" / f"{fitted.path.stem}-pt2"
    assert re.fullmatch(rf"{folder}: probabilities within \S+ of the classifier's", said)
    names: dict[str, Any] = {}
    exec(line, names)
    images = torch.rand(3, 3, 32, 32)
    with torch.inference_mode():
        given = names["model"](images)
        torch.testing.assert_close(given, fitted.classifier.predict(images).probability_BC)
    text = (folder / "README.md").read_text()
    assert front_of(text)["pipeline_tag"] == "image-classification"
    assert "\nIn the order of the probabilities: class0, class1, class2.\n" in text
    for line in fitted.text.splitlines()[2:4]:
        assert f"| {line.replace(': ', ' | ', 1)} |" in text
    assert str(photos.parent.parent) not in text  # no paths
    with pytest.raises(UserError, match="expected none with a classifier"):
        mast.export(fitted.path, "pt2", ignore="color")


def front_of(text: str) -> dict[str, Any]:
    _, front, _ = text.split("---\n", 2)
    return yaml.safe_load(front)


def card_of(run: Path, monkeypatch: pytest.MonkeyPatch, **options: str) -> str:
    """What an export would say, without the time that one takes."""
    texts: list[str] = []
    monkeypatch.setattr("mast.exports.folder.export_folder", lambda *given: texts.append(given[4]))
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
    assert "| recipe | mast_c5_small |" in text
    values = result.targets["class"].values
    row = f"| {values['top1']:.1f} | [{values['top1_low']:.1f}, {values['top1_high']:.1f}] |"
    assert f"| 24 | class | top-1 {row}" in text
    result.encoder["fingerprint"] = "0" * 64
    result.write(run)  # a result of another encoder
    other = card_of(run, monkeypatch)
    assert "Nothing was measured of this encoder yet." in other
    assert "license" not in front_of(other)
    assert str(photos.parent.parent) not in text  # no paths
    with pytest.raises(UserError, match=r"need measurements of .*run: pass the folder"):
        card_of(run, monkeypatch, ignore="color")
    in_depths = mast.fit(str(photos), run, space="depths").path
    assert "Pretraining of the encoder" in card_of(in_depths, monkeypatch)
