"""`mast fit` and `mast predict`: from labels to a table, by command and as functions."""

import csv
import re
import shlex
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pandas
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from tiny import Pooled

import mast
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.calibration import calibrate
from mast.evaluation.labelled_sets import EvaluationData, tasks
from mast.evaluation.logistic import Whitened
from mast.evaluation.named_sets import NamedSets
from mast.evaluation.protocols import Linear

USE = Path(__file__).parents[2] / "docs" / "use.md"
QUICK = {"penalties": [1.0, 0.01]}


def rows_of(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_linear_classifier_scores_as_the_protocol(
    ours: RunFolder, photos: Path, tmp_path: Path
) -> None:
    fitted = mast.fit(photos, ours.path)
    data = NamedSets(photos).open(EvaluationData, 32)
    encoder, protocol = FrozenEncoder(mast.load_encoder(ours.path)), Linear()
    (task,) = tasks(data, 0)
    (learned,) = protocol.learn(encoder.pool_features(data.pool, 32), [task])
    test_MD = encoder.features(data.test, 32)
    with torch.no_grad():
        found, expected = fitted.classifier.head(test_MD), learned.classifier.scores(test_MD)
        torch.testing.assert_close(
            found.softmax(1), expected.float().softmax(1), rtol=1e-4, atol=1e-4
        )
    assert repr(fitted) == fitted.text
    assert fitted._repr_html_().startswith("<pre")
    assert fitted.about["validation"]["chosen"] == {"penalty": learned.penalty}
    assert fitted.about["validation"]["top1"] == pytest.approx(learned.validation)
    (result,) = mast.evaluate(ours.path, photos, "linear")
    predicted = mast.predict(photos / "test", fitted.path, tmp_path / "told.csv")
    rows = rows_of(predicted.file)
    assert predicted.to_pandas()["class"].tolist() == [row["class"] for row in rows]
    right = [row["path"].startswith(f"{row['class']}/") for row in rows]
    assert 100 * np.mean(right) == pytest.approx(result.targets["class"].values["top1"])


def test_the_temperature_is_that_of_images_that_were_held_out(
    ours: RunFolder, photos: Path
) -> None:
    """By val where there is one, by folds where there is none; in neither by what was fitted."""
    encoder = FrozenEncoder(mast.load_encoder(ours.path))
    for data, held_out, count in ((photos, "val", 24), (photos / "train", "in 5 folds", 48)):
        fitted = mast.fit(data, ours.path, settings=QUICK)
        penalty = fitted.about["validation"]["chosen"]["penalty"]
        learning = NamedSets(data).learning(32)
        (task,) = tasks(learning, 0)
        pool_ND, labels_N = encoder.pool_features(learning.pool, 32), task.pool_labels_N
        scores, labels = [], []
        for fit_F, choose_V in task.splits:
            assert not set(fit_F.tolist()) & set(choose_V.tolist())
            one = Linear().fit(Whitened.of(pool_ND[fit_F]), labels_N[fit_F], penalty, task)
            scores.append(one.scores(pool_ND[choose_V]))
            labels.append(labels_N[choose_V])
        expected = calibrate(torch.cat(scores), torch.cat(labels), 0)
        assert fitted.classifier.temperature == pytest.approx(expected.temperature)
        assert fitted.about["calibration"]["error_after"] == pytest.approx(expected.error_after)
        validation = fitted.about["validation"]
        assert (validation["held_out"], validation["images"]) == (held_out, count)
        for fact in (f"{validation['top1']:.1f} % [", str(fitted.path)):
            assert fact in fitted.text


def test_a_classifier_is_tested_on_labelled_images(
    ours: RunFolder, photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fitted = mast.fit(photos / "train", ours.path, settings=QUICK)
    labelled = shutil.copytree(photos / "test", tmp_path / "labelled")
    (labelled / "zebra").mkdir()
    first = next(file for file in (photos / "test").rglob("*") if file.is_file())
    shutil.copy(first, labelled / "zebra")
    (result,) = mast.evaluate(fitted.path, labelled)
    assert "1 of 25 images are left out, as the classifier does not know" in caplog.text
    rows = rows_of(mast.predict(photos / "test", fitted.path, tmp_path / "told.csv").file)
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
    assert 0 < measured.values["calibration_error"] < 100
    with pytest.raises(UserError, match="protocols: expected none with a classifier"):
        mast.evaluate(fitted.path, labelled, "svm")
    features = mast.embed(photos / "test", ours.path, tmp_path / "f.npz")
    with pytest.raises(UserError, match="features: expected none, as this classifier"):
        mast.predict(photos / "test", mast.load_classifier(fitted.path), features=features)
    (seen,) = mast.evaluate(fitted.path, photos / "train")
    assert seen.duplicates == {"train": 48}
    for at in range(3):
        (labelled / f"class{at}").rename(labelled / f"other{at}")
    with pytest.raises(UserError, match="expected some of the classifier's classes"):
        mast.evaluate(fitted.path, labelled)


def test_no_classifier_of_another_set_is_replaced(
    ours: RunFolder, photos: Path, tmp_path: Path
) -> None:
    """Of two sets whose names end alike."""
    other = shutil.copytree(photos, tmp_path / "other" / photos.parent.name / photos.name)
    next((other / "val" / "class0").iterdir()).unlink()
    first = mast.fit(photos, ours.path, settings=QUICK).path
    with pytest.raises(UserError, match=f"{first.name} was trained on {photos}; choose"):
        mast.fit(other, ours.path, settings=QUICK)
    assert mast.fit(photos, ours.path, settings=QUICK, seed=1).path == first
    with pytest.raises(UserError, match=r"encoder\.safetensors exists and was not written"):
        mast.fit(photos, ours.path, out=ours.encoder)
    assert mast.fit(other, ours.path, settings=QUICK, out=first).path == first


def test_where_only_identity_can_be_learned_groups_say_so(
    ours: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve patients, each with a look of its own, three of them in class a; one in both parts."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for patient in range(12):
        look = draw.integers(0, 256, (4, 4, 3)).repeat(8, 0).repeat(8, 1)
        for at in range(8):
            file = Path(f"set/{'ab'[patient > 2]}/p{patient}/{at}.png")
            file.parent.mkdir(parents=True, exist_ok=True)
            noisy = np.clip(look + draw.normal(0, 4, look.shape), 0, 255)
            Image.fromarray(noisy.astype(np.uint8)).save(file)
    files = sorted(map(str, Path("set").rglob("*.png")))
    table = pandas.DataFrame({"path": files, "label": [file[4] for file in files]})
    table["patient"] = [file.split("/")[2] for file in files]
    alone = mast.fit("set", Pooled(), size=32, settings=QUICK).about["validation"]
    assert (alone["top1"], alone["mean_per_class"], alone["by_chance"]) == (100, 100, 75)
    for data, groups in (("set", "2"), ("set", "/(p[0-9]+)/"), (table, "patient")):
        fitted = mast.fit(data, Pooled(), size=32, settings=QUICK, groups=groups)
        found = fitted.about["validation"]
        assert found["mean_per_class"] < 75
        assert found["top1_high"] - found["top1_low"] > 35  # of 12 groups, not of 96 images
        assert {"75.0 %", f"{found['mean_per_class']:.1f} %"} <= {
            *re.findall(r"\S+ %", fitted.text)
        }
    (result,) = mast.evaluate(Pooled(), "set#groups=2", "knn", size=32)
    assert result.files == {"train": 9, "test": 3}
    shutil.copytree("set", "parts/train")
    shutil.move("parts/train/a/p2", "parts/val/a/p2")
    shutil.copytree("parts/train/b/p3", "parts/val/b/p3")
    with pytest.raises(UserError, match="got 1 in both train and val, the first of them p3"):
        mast.fit("parts", Pooled(), size=32, groups="2")


def test_a_table_says_what_the_classifier_says(
    ours: RunFolder, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fitted = mast.fit(photos, ours.path, settings=QUICK, size=40)
    assert fitted.classifier.size == 40
    strange = shutil.copytree(photos / "test", tmp_path / "new" / "strange")
    (strange / "class0").rename(strange / "=1+1")
    words = ["predict", str(strange), "--classifier", str(ours.path), "--every_class"]
    assert main(words) == 0
    table = Path(f"predictions-new-strange-by-{ours.path.name}-{fitted.path.stem}.csv")
    assert main([*words, "--out", "told.parquet"]) == 0
    rows, columns = rows_of(table), pyarrow.parquet.read_table("told.parquet").to_pydict()
    paths = columns["path"]
    assert [row["path"] for row in rows] == [f"'{p}" if p[0] == "=" else p for p in paths]
    images = mast.open_images([strange / path for path in paths], 40)
    predicted = fitted.classifier.predict(images)
    assert tuple(columns["class"]) == predicted.classes == tuple(row["class"] for row in rows)
    for name, expected in (
        ("margin", predicted.margin_B),
        ("probability of class1", predicted.probability_BC[:, 1]),
    ):
        np.testing.assert_allclose(columns[name], expected.numpy(), atol=1e-6)
        np.testing.assert_allclose([float(row[name]) for row in rows], expected, atol=1e-6)
    plain = mast.predict(strange, fitted.classifier)
    assert plain.file == Path("predictions-new-strange.csv")
    assert list(rows_of(plain.file)[0]) == ["path", "class", "probability", "margin"]
    (summary, _), (_, unsure) = plain.sections.items()
    ((name, count), *_) = Counter(columns["class"]).most_common()
    assert f"24 images of {strange}: {name} {count}, " in summary
    assert {*unsure} == {at for at, of in enumerate(columns["probability"]) if of < 0.5}


def test_a_fine_tuned_network_is_kept(ours: RunFolder, photos: Path, tmp_path: Path) -> None:
    changes = {"epochs": 2, "batch_size": 16, "encoder_lr": 0.1}
    fitted = mast.fit(
        photos, ours.path, "finetune", settings={"changes": changes, "encoder_lrs": [0.01, 0.1]}
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
