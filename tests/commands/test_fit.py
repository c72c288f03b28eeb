"""`mast fit` and `mast predict`: from labels to a table, by command and as functions."""

import copy
import csv
import json
import re
import shlex
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from layouts import write_coco
from PIL import Image
from safetensors import safe_open
from tiny import ENCODER
from torch import nn

import mast
from mast.cli import main
from mast.core.errors import UserError
from mast.core.reading import Layout, Reading
from mast.core.run import RunFolder
from mast.data import open_canvas
from mast.evaluation.calibration import calibrate
from mast.evaluation.features import extract
from mast.evaluation.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData, tasks
from mast.evaluation.named_sets import NamedSets
from mast.evaluation.protocols import Linear
from mast.evaluation.result import readable
from mast.models import Encoder

USE = Path(__file__).parents[2] / "docs" / "use.md"
QUICK = {"penalties": [1.0, 0.01]}


class Corners(nn.Module):
    """A module of one's own, with statistics that must not change."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(self.norm(images_BCHW), 2).flatten(1)


def rows_of(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_linear_classifier_scores_as_the_protocol(
    ours: RunFolder, photos: Path, tmp_path: Path
) -> None:
    fitted = mast.fit(ours.path, photos)
    data = NamedSets(photos).open(EvaluationData, 32)
    assert isinstance(data, EvaluationData)
    encoder, protocol = FrozenEncoder(mast.load_encoder(ours.path)), Linear()
    (task,) = tasks(data, 0)
    (learned,) = protocol.learn(encoder.pool_features(data.pool, 32), [task])
    test_MD = encoder.features(data.test, 32)
    with torch.no_grad():
        torch.testing.assert_close(
            fitted.classifier.head(test_MD), learned.scores(test_MD).float(), rtol=1e-4, atol=1e-4
        )
    assert repr(fitted) == fitted.text
    assert fitted._repr_html_().startswith("<pre")
    assert fitted.about["validation"]["chosen"] == {"penalty": learned.penalty}
    assert fitted.about["validation"]["top1"] == pytest.approx(learned.validation)
    (result,) = mast.evaluate(ours.path, photos, "linear")
    rows = rows_of(mast.predict(fitted.path, photos / "test", tmp_path / "told.csv").path)
    right = [row["path"].startswith(f"{row['class']}/") for row in rows]
    assert 100 * np.mean(right) == pytest.approx(result.targets["class"].values["top1"])


def test_the_temperature_is_that_of_images_that_were_held_out(
    ours: RunFolder, photos: Path
) -> None:
    """By val where there is one, by folds where there is none; in neither by what was fitted."""
    encoder = FrozenEncoder(mast.load_encoder(ours.path))
    for data, held_out, count in ((photos, "val", 24), (photos / "train", "in 5 folds", 48)):
        fitted = mast.fit(ours.path, data, settings=QUICK)
        penalty = fitted.about["validation"]["chosen"]["penalty"]
        learning = NamedSets(data).learning(32)
        (task,) = tasks(learning, 0)
        pool_ND, labels_N = encoder.pool_features(learning.pool, 32), task.pool_labels_N
        scores, labels = [], []
        for fit_F, choose_V in task.splits:
            assert not set(fit_F.tolist()) & set(choose_V.tolist())
            one = Linear().fit(pool_ND[fit_F], labels_N[fit_F], penalty, task)
            scores.append(one.scores(pool_ND[choose_V]))
            labels.append(labels_N[choose_V])
        expected = calibrate(torch.cat(scores), torch.cat(labels), 0)
        assert fitted.classifier.temperature == expected.temperature
        assert fitted.about["calibration"]["error_after"] == expected.error_after
        validation = fitted.about["validation"]
        assert (validation["held_out"], validation["images"]) == (held_out, count)
        command = f"mast fit timm:resnet18.a1_in1k --data {data} --size 224 --download"
        lines = fitted.text.splitlines()
        for line, fact in zip(
            lines,
            ("3 classes, learned from ", f"{validation['top1']:.1f} % [",
             f"temperature {expected.temperature:.3g}", command, str(fitted.path)),
            strict=True,
        ):  # fmt: skip
            assert fact in line


def test_a_classifier_is_tested_on_labelled_images(
    ours: RunFolder, photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fitted = mast.fit(ours.path, photos / "train", settings=QUICK)
    labelled = shutil.copytree(photos / "test", tmp_path / "labelled")
    (labelled / "zebra").mkdir()
    first = next(file for file in (photos / "test").rglob("*") if file.is_file())
    shutil.copy(first, labelled / "zebra")
    (result,) = mast.evaluate(fitted.path, labelled)
    assert "1 of 25 images are of classes that the classifier does not know" in caplog.text
    rows = rows_of(mast.predict(fitted.path, photos / "test", tmp_path / "told.csv").path)
    pairs = Counter((row["path"].partition("/")[0], row["class"]) for row in rows)
    measured = result.targets["class"]
    assert pairs == {
        (true, said): count
        for true, taken in measured.confusion.items()
        for said, count in taken.items()
    }
    right = sum(count for (true, said), count in pairs.items() if true == said)
    assert measured.values["top1"] == pytest.approx(100 * right / 24)
    for true, taken in measured.confusion.items():
        recall = 100 * taken.get(true, 0) / sum(taken.values())
        assert measured.values[f"recall/{true}"] == pytest.approx(recall)
    gaps = [count * abs(said - right) for count, said, right in measured.reliability]
    assert measured.values["calibration_error"] == pytest.approx(sum(gaps) / 24)
    assert sum(row[0] for row in measured.reliability) == 24
    assert measured.counts == fitted.about["images"]["classes"]
    assert any("that `mast fit` held out" in note for note in result.notes())
    page = mast.report(ours.path).read_text()
    assert f"{result.protocol} on {readable(str(labelled))}: by class" in page
    (seen,) = mast.evaluate(fitted.path, photos / "train")
    assert seen.duplicates == {"train": 48}
    with pytest.raises(UserError, match="leave weights out"):
        mast.evaluate(fitted.path, labelled, weights="x")
    for at in range(3):
        (labelled / f"class{at}").rename(labelled / f"other{at}")
    with pytest.raises(UserError, match="none of the classifier's classes"):
        mast.evaluate(fitted.path, labelled)


def test_the_file_says_what_it_holds(ours: RunFolder, photos: Path) -> None:
    fitted = mast.fit(ours.path, photos, settings=QUICK)
    assert fitted.path.parent == ours.path
    assert re.fullmatch(r"classifier-linear-[\w-]+\.safetensors", fitted.path.name)
    with safe_open(fitted.path, framework="pt") as file:
        said = json.loads(file.metadata()["mast"])
    assert said["encoder"] == mast.load_encoder(ours.path).describe()["encoder"]
    assert said["normalization"]["mean"] == [0.485, 0.456, 0.406]
    assert said["classifier"]["classes"] == ["class0", "class1", "class2"]
    about = said["classifier"]["about"]
    assert about["images"]["sizes"] == {"train": 48, "val": 24}
    assert about["images"]["fingerprints"]["val"] == open_canvas(photos / "val", 32).fingerprint
    assert about["encoder"]["source"] == str(ours.path)
    assert about["validation"]["top1_low"] <= about["validation"]["top1"]
    assert "torch" in about["provenance"]["versions"]
    again = mast.load_classifier(ours.path)
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(again(images), fitted.classifier(images))


def test_no_classifier_of_another_set_is_replaced(
    ours: RunFolder, photos: Path, tmp_path: Path
) -> None:
    """Two sets whose names end alike, as results keep them apart."""
    other = shutil.copytree(photos, tmp_path / "other" / photos.parent.name / photos.name)
    next((other / "val" / "class0").iterdir()).unlink()
    first = mast.fit(ours.path, photos, settings=QUICK).path
    second = mast.fit(ours.path, other, settings=QUICK).path
    assert mast.fit(ours.path, photos, settings=QUICK, seed=1).path == first != second
    assert mast.load_classifier(second).about["images"]["set"] == str(other)
    with pytest.raises(UserError, match=r"encoder\.safetensors exists and is not what"):
        mast.fit(ours.path, photos, out=ours.encoder)
    assert mast.fit(ours.path, other, settings=QUICK, out=first).path == first


def test_a_table_says_what_the_classifier_says(
    ours: RunFolder, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fitted = mast.fit(ours.path, photos, settings=QUICK, size=40)
    assert fitted.classifier.size == 40
    strange = shutil.copytree(photos / "test", tmp_path / "new" / "strange")
    (strange / "class0").rename(strange / "=1+1")
    words = ["predict", str(ours.path), "--data", str(strange), "--every_class"]
    assert main(words) == 0
    kind = fitted.path.stem.removeprefix("classifier-")
    table = Path(f"predictions-new-strange-by-{ours.path.name}-{kind}.csv")
    assert main([*words, "--out", "told.parquet"]) == 0
    rows, columns = rows_of(table), pyarrow.parquet.read_table("told.parquet").to_pydict()
    paths = columns["path"]
    assert [row["path"] for row in rows] == [f"'{p}" if p[0] == "=" else p for p in paths]
    images = mast.open_images([strange / path for path in paths], 40)
    predicted = fitted.classifier.predict(images)
    assert tuple(columns["class"]) == predicted.classes == tuple(row["class"] for row in rows)
    for name, expected in (
        ("probability", predicted.probability_B),
        ("margin", predicted.margin_B),
        ("probability of class1", predicted.probability_BC[:, 1]),
    ):
        np.testing.assert_allclose(columns[name], expected.numpy(), atol=1e-6)
        np.testing.assert_allclose([float(row[name]) for row in rows], expected, atol=1e-6)
    assert list(rows[0])[:4] == ["path", "class", "probability", "margin"]
    assert len(rows[0]) == 4 + 3
    plain = mast.predict(fitted.classifier, strange, "plain.csv")
    assert list(rows_of(plain.path)[0]) == list(rows[0])[:4]
    assert list(plain.counts.items()) == Counter(columns["class"]).most_common()
    assert plain.uncertain == sum(probability < 0.5 for probability in columns["probability"])
    assert str(tmp_path / "plain.csv") in plain.text
    assert mast.predict(fitted.classifier, strange).path == Path("predictions-new-strange.csv")
    with pytest.raises(UserError, match=r"out must end in \.csv or \.parquet, got told\.npz"):
        mast.predict(fitted.path, strange, "told.npz")


def test_one_of_several_classifiers_is_named(
    ours: RunFolder, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for data in (photos, photos / "train"):
        mast.fit(ours.path, data, settings=QUICK)
    assert main(["predict", str(ours.path), "--data", str(photos / "test")]) == 2
    commands = re.findall("`(.*?)`", capsys.readouterr().err)
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command.replace("FOLDER", str(photos / "test")))
        assert main(words[1:]) == 0, command
    assert len(list(tmp_path.glob("predictions-*.csv"))) == 2  # neither replaces the other's


def test_images_are_opened_as_a_set_is(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for name, exif in (("a.png", {}), ("b.jpg", {}), ("c.jpg", {"exif": Image.Exif()})):
        image = Image.fromarray(generator.integers(0, 256, (130, 390, 3), np.uint8))
        if exif:
            exif["exif"][0x0112] = 6
        image.save(tmp_path / name, **exif)
    seen: list[torch.Tensor] = []

    class Seen(nn.Module):
        def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
            seen.append(images_BCHW)
            return images_BCHW.flatten(1)

    files = sorted(tmp_path.iterdir())
    for size in (16, 128):
        extract(Seen(), open_canvas(tmp_path, size), size)
        opened = mast.open_images(files, size)
        assert torch.equal(opened, seen.pop())
        for file, expected in zip(files, opened, strict=True):
            image = Image.open(file)
            torch.testing.assert_close(
                mast.open_images(image, size)[0], expected, atol=0.12, rtol=0
            )
            assert image.size == (390, 130)
    (tmp_path / "broken.jpg").write_bytes(b"x")
    for name in ("broken.jpg", "none.jpg", "."):
        with pytest.raises(UserError, match="replace or remove this file"):
            mast.open_images(tmp_path / name, 16)
    with pytest.raises(UserError, match="there is no image"):
        mast.open_images([], 16)


def test_a_fine_tuned_network_is_kept(ours: RunFolder, photos: Path, tmp_path: Path) -> None:
    changes = {"epochs": 2, "batch_size": 16, "encoder_lr": 0.1}
    fitted = mast.fit(
        ours.path, photos, "finetune", settings={"changes": changes, "encoder_lrs": [0.01, 0.1]}
    )
    assert fitted.path.name.startswith("classifier-finetune-")
    assert set(fitted.about["validation"]["chosen"]) == {"encoder_lr"}
    assert ", on which the learning rate of the encoder was chosen, too\n" in fitted.text
    assert fitted.about["validation"]["images"] == 24
    assert not list((ours.path / "evaluations").rglob("*.pt"))  # nothing unfinished is left
    encoder, images = mast.load_encoder(ours.path), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert not torch.equal(fitted.classifier.encoder(images), encoder(images))
        assert torch.equal(mast.load_classifier(fitted.path)(images), fitted.classifier(images))


def test_a_module_of_ones_own(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = Corners().train()
    before = copy.deepcopy(module.state_dict())
    (result,) = mast.evaluate(module, photos, "linear", size=32)
    (file,) = tmp_path.glob("runs/Corners-*/evaluations/linear-*.json")
    assert result.encoder["module"].endswith(".Corners")
    fitted = mast.fit(module, photos, size=32)
    assert fitted.path.parent == file.parents[1].relative_to(tmp_path)
    table = mast.embed(module, photos / "test", "features.npz", size=32)
    with np.load(table) as arrays, torch.no_grad():
        features = torch.from_numpy(arrays["features"])
        right = fitted.classifier.head(features).argmax(dim=1).numpy() == arrays["target_class"]
    assert 100 * right.mean() == pytest.approx(result.targets["class"].values["top1"])
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert main(["predict", str(fitted.path), "--data", str(photos / "test")]) == 2
    after = mast.load_classifier(fitted.path, Corners())
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(after(images), fitted.classifier(images))
    with torch.no_grad():
        module.norm.weight.mul_(2)
    mast.evaluate(module, photos, "knn", size=32)
    assert len(list(tmp_path.glob("runs/Corners-*"))) == 2
    for options, message in (
        ({}, "Corners does not say at which size it takes images: give size"),
        ({"size": 32, "weights": "x.pth"}, "a module has its weights: leave weights out"),
        ({"size": 32, "untrained": True}, "give a run folder, not a module"),
    ):
        with pytest.raises(UserError, match=message):
            mast.evaluate(module, photos, **options)  # type: ignore[arg-type]


def test_what_cannot_be_learned_is_one_line(
    ours: RunFolder, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coco = f"coco:{write_coco(tmp_path / 'coco')}"
    for options, message in (
        ("--data factors:32", "has several targets: give target, one of shape, color"),
        ("--data factors:32 --target colour", "unknown target 'colour'. Did you mean 'color'"),
        (f"--data {coco}", "labels of several classes an image, and a classifier tells one"),
        (f"--data {photos}/train/class0", "has no labels"),
        (f"--data {photos} --kind svm", "unknown value of kind 'svm'"),
        (f"--data {photos} --settings {{}} --out run.pt", "out must end in .safetensors"),
        (f"--data {photos} --settings '{{\"penalty\": 1}}'", "Did you mean 'penalties'"),
        (f"--data {photos}/nowhere", "no folder"),
    ):
        assert main(["fit", str(ours.path), *shlex.split(options)]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") <= 1 + said.count("looks like")
    with pytest.raises(UserError, match="expected the encoder to return a representation"):
        mast.fit(nn.Identity(), photos, size=8)


def test_what_the_manual_shows_runs(
    ours: RunFolder,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ours.path, "runs/flowers")
    shutil.copytree(photos, "flowers17")
    shutil.copytree(photos / "train", "labelled")
    shutil.copytree(photos / "test" / "class1", "photos")
    for name, image in zip(("rose", "iris"), sorted(Path("photos").iterdir()), strict=False):
        image.rename(f"photos/{name}.jpg")
    text, names = USE.read_text().partition("## Export")[0], {}
    for kind, block in re.findall(r"```(bash|python)\n(.*?)```", text, re.DOTALL):
        if kind == "python":
            exec(block, names)
            continue
        for line in block.strip().splitlines():
            assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    assert names["probabilities"].shape == (2, 3)
    assert rows_of(Path("classes.csv"))[0].keys() > {"probability of class2"}
    said = capsys.readouterr().out
    assert "classifier-linear-flowers17.safetensors" in said
    table = tmp_path / "predictions-photos-by-flowers-linear-flowers17.csv"
    assert f"table: {table}\n" in said
    assert f"table: {tmp_path / 'classes.csv'}\n" in said


def test_how_files_were_read_is_kept(tmp_path: Path) -> None:
    """An encoder that knows 8 bits alone learns from 12, and later images are read as these."""
    draw = np.random.default_rng(0)
    for at in range(12):
        values = draw.integers(0, 4000 if at < 10 else 300, (16, 16, 3)).astype(np.uint16)
        file = tmp_path / ("learned" if at < 10 else "later") / f"class{at % 2}" / f"{at}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, values)
    encoder = Encoder(ENCODER, 16)
    fitted = mast.fit(encoder, tmp_path / "learned", size=16, out=tmp_path / "x.safetensors")
    assert fitted.classifier.reading == Reading(Layout(3, deep=True), (0.0,), (4095.0,))
    loaded = mast.load_classifier(fitted.path)
    for classifier in (fitted.classifier, loaded):
        assert classifier.reading == fitted.classifier.reading
        later = open_canvas(str(tmp_path / "later"), 16, model=classifier)
        assert later.reading == classifier.reading
