"""`mast embed`, by command and as a function."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from layouts import write_coco

import mast
from mast.core.errors import UserError
from mast.data import DataConfig, open_canvas


def test_embed_writes_both_kinds(run: Path, photos: Path, tmp_path: Path) -> None:
    encoder = mast.load_encoder(run)
    npz = mast.embed(str(photos / "test"), run, tmp_path / "features.npz")
    parquet = mast.embed(str(photos / "test"), run, tmp_path / "features.parquet")
    with np.load(npz) as arrays:
        features_ND = arrays["features"]
        assert features_ND.shape == (24, encoder.dim)
        assert features_ND.dtype == np.float32
        names = arrays["identifiers"].tolist()
        labels = arrays["target_class"].tolist()
        classes = arrays["classes_class"].tolist()
    assert all((photos / "test" / name).is_file() for name in names)
    assert [name.partition("/")[0] for name in names] == [classes[label] for label in labels]
    table = pyarrow.parquet.read_table(parquet)
    assert json.loads(table.schema.metadata[b"classes_class"]) == classes
    assert table["identifier"].to_pylist() == names
    assert table["target_class"].to_pylist() == labels
    assert np.array_equal(np.array(table["features"].to_pylist(), np.float32), features_ND)
    with pytest.raises(UserError, match=r"\.npz or \.parquet"):
        mast.embed(str(photos / "test"), run, tmp_path / "features.csv")


def test_features_of_a_file_take_the_place_of_their_encoder(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "3").mkdir()  # hides no query by position
    file = mast.embed(photos, run, tmp_path / "features.parquet")
    measured = [mast.evaluate(source, photos, "knn")[0] for source in (run, file)]
    assert measured[0].targets == measured[1].targets
    for search in (partial(mast.neighbours, query="3", k=4), mast.duplicates):
        first, second = (
            dict(search(photos / "test", encoder=each).columns) for each in (run, file)
        )
        # batches of other sizes may round otherwise
        assert first.pop("cosine") == pytest.approx(second.pop("cosine"), abs=1e-6)
        assert first == second
    fitted = mast.fit(photos / "train", file, settings={"penalties": [0.1]})
    own = mast.load_classifier(fitted.path, mast.load_encoder(run))
    assert mast.evaluate(own, photos)[0].targets["class"].values["top1"] > 0
    by_model = mast.predict(photos / "test", own, "by_model.csv").file.read_text()
    by_file = mast.predict(photos / "test", fitted.path, "by_file.csv", file).file.read_text()
    assert [row.split(",")[:2] for row in by_file.splitlines()] == [
        row.split(",")[:2] for row in by_model.splitlines()
    ]
    with pytest.raises(UserError, match="the --features of new images"):
        mast.predict(photos / "test", fitted.path)
    with pytest.raises(UserError, match="holds no encoder"):
        mast.export(fitted.path)
    with pytest.raises(UserError, match="must encode images again"):
        mast.evaluate(file, photos, "robust")


def test_features_of_a_file_are_those_of_pieces_and_of_parts(run: Path, photos: Path) -> None:
    (run / "out.txt").write_text("class0/000.jpg\n")
    for cut in ("tile=24", f"exclude={run}/out.txt"):
        data = f"{photos}/train#{cut}"
        file = mast.embed(data, run, run / "features.npz")
        own, theirs = (mast.evaluate(each, data, "knn")[0].targets for each in (run, file))
        assert own == theirs


def test_features_of_a_file_are_found_by_path(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = sorted(file for file in (photos / "test").rglob("*") if file.is_file())
    features_ND = np.random.default_rng(0).normal(size=(len(files), 5))
    short = [file.relative_to(photos / "test").as_posix() for file in files]

    def nearest(names: list[str], rows: np.ndarray = features_ND) -> Any:
        np.savez("own.npz", features=rows, paths=np.array(names))
        return mast.neighbours(photos / "test", "0", "own.npz", k=2, size=32).columns

    cosine_N = features_ND @ features_ND[0] / np.linalg.norm(features_ND, axis=1)
    expected = [short[at] for at in (-cosine_N).argsort() if at][:2]
    for names in (short, list(map(str, files)), [f"test/{name}" for name in short]):
        order = np.random.default_rng(1).permutation(len(files))
        found = nearest([names[at] for at in order], features_ND[order])
        assert list(found["path"]) == expected
    with pytest.raises(UserError, match=f"2 of 24 images .* first of {short[0]}"):
        nearest(short[2:], features_ND[2:])
    with pytest.raises(UserError, match="twice"):
        nearest([short[1], *short[1:]])
    with pytest.raises(UserError, match=f"not finite, first of {short[0]}"):
        nearest(short, np.full_like(features_ND, np.nan))
    for part in ("train", "test"):
        (tmp_path / "both" / part / "a").mkdir(parents=True)
        for file in files[:2]:
            shutil.copy(file, tmp_path / "both" / part / "a" / file.name)
    np.savez("own.npz", features=np.eye(2), paths=[f"a/{file.name}" for file in files[:2]])
    with pytest.raises(UserError, match="one row for two images"):
        mast.embed(tmp_path / "both", "own.npz", tmp_path / "again.npz", size=32)


def test_embed_says_what_made_the_features(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = str(photos / "test")
    (result,) = mast.evaluate(run, str(photos), "knn")
    npz = mast.embed(data, run, tmp_path / "features.npz")
    with np.load(npz) as arrays:
        assert arrays["encoder"].item() == result.encoder["fingerprint"]
        assert arrays["size"] == 32
        assert arrays["data"].item() == data
    monkeypatch.chdir(tmp_path)
    for encoder, name in (
        (run, run.name),
        (run / "encoder.safetensors", run.name),
        ("timm:test_resnet", "timm-test_resnet"),
    ):
        assert mast.embed(data, encoder, untrained=True) == Path(f"{photos.name}-test-{name}.npz")


def test_embed_writes_what_an_image_shows(run: Path, tmp_path: Path) -> None:
    data = f"coco:{write_coco(tmp_path / 'coco')}@train2017"
    with np.load(mast.embed(data, run, tmp_path / "features.npz")) as arrays:
        assert arrays["multilabel_objects"].tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 0]]
        classes = arrays["classes_objects"].tolist()
    assert classes == list(open_canvas(DataConfig(data), 32).classes["objects"])
