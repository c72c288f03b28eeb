"""Images that cannot be decoded: every command lists them and goes on with the rest."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from tiny import Pooled, write_images

import mast
from mast.core.errors import UserError

WHOLE = 12  # images beside the broken one, which is more than one percent of all


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = write_images(tmp_path / "data", WHOLE)
    (folder / "class0" / "empty.jpg").touch()
    return folder


def test_a_broken_image_is_a_row_with_its_reason(data: Path, tmp_path: Path) -> None:
    encoder = Pooled()
    fitted = mast.fit(data, encoder, size=32, out=tmp_path / "c.safetensors")
    classifier = mast.load_classifier(fitted.path, encoder)
    told = mast.predict(data, classifier, tmp_path / "told.csv")
    ranked = mast.outliers(data, encoder, tmp_path / "ranked.csv", size=32, labels=False)
    assert f"{WHOLE} images of {data} (1 more is broken): " in repr(told)
    assert ranked.columns["path"][-1] == "class0/empty.jpg"
    for table in (told.file, tmp_path / "ranked.csv"):
        with table.open(newline="") as file:
            *rows, last = csv.DictReader(file)
        assert len(rows) == WHOLE
        assert {row["broken"] for row in rows} == {""}
        assert "no image" in last.pop("broken")
        assert {name: value for name, value in last.items() if value} == {
            "path": "class0/empty.jpg"
        }


def test_a_broken_image_is_named_where_it_has_no_row(data: Path, tmp_path: Path) -> None:
    encoder = Pooled()
    with np.load(mast.embed(data, encoder, tmp_path / "e.npz", size=32)) as arrays:
        assert len(arrays["features"]) == WHOLE
        assert arrays["broken"][0, 0] == "class0/empty.jpg"
    parquet = mast.embed(data, encoder, tmp_path / "e.parquet", size=32)
    metadata = pyarrow.parquet.read_schema(parquet).metadata
    assert json.loads(metadata[b"broken"])[0][0] == "class0/empty.jpg"
    (said,) = mast.duplicates(data, encoder, size=32).sections
    assert said.startswith(f"{WHOLE} images of {data} (1 more is broken): ")
    page = tmp_path / "near.html"
    assert mast.neighbours(data, "0", encoder, 3, page, size=32).columns["rank"] == [1, 2, 3]
    assert "1 more is broken" in page.read_text()
    with pytest.raises(UserError, match=r"class0/empty.jpg', which is broken: no image"):
        mast.neighbours(data, "class0/empty.jpg", encoder, 3, size=32)
    (result,) = mast.evaluate(encoder, data, "knn", size=32)
    assert sum(result.sizes.values()) == WHOLE


def test_a_set_without_whole_images_is_refused(tmp_path: Path) -> None:
    none_left = tmp_path / "none"
    none_left.mkdir()
    (none_left / "empty.jpg").touch()
    with pytest.raises(UserError, match=r"empty\.jpg"):
        mast.duplicates(none_left, Pooled(), size=32)
