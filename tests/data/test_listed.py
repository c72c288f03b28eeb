"""Sets that a table lists, and lists, tables and images of Python."""

from pathlib import Path

import numpy as np
import pandas
import pytest
from PIL import Image
from tiny import Pooled

import mast
from mast.core.errors import UserError
from mast.data import open_source, set_name
from mast.data.listed import as_spec
from mast.data.registry import describe
from mast.evaluation.named_sets import NamedSets


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three images, in two folders."""
    paths = [tmp_path / name for name in ("b.png", "a.png", "sub/c.png")]
    (tmp_path / "sub").mkdir()
    for at, path in enumerate(paths):
        Image.fromarray(np.full((8, 8, 3), 40 * at, np.uint8)).save(path)
    return paths


def test_a_table_has_paths_and_labels(files: list[Path], tmp_path: Path) -> None:
    table = tmp_path / "photos.csv"
    table.write_text("label,Path,x\ndog,b.png,1\n,a.png,2\ncat,sub/c.png,3\n")
    source = open_source(f"list:{table}")
    assert [source.identifier(at) for at in range(len(source))] == ["b.png", "a.png", "sub/c.png"]
    assert source.classes == {"class": ("cat", "dog")}
    assert source.targets["class"].tolist() == [1, -1, 0]
    assert [int(source.load(at)[0, 0, 0]) for at in range(3)] == [0, 40, 80]
    assert describe(f"list:{table}").parts == {"all": f"list:{table}"}
    before = source.fingerprint()
    Image.new("RGB", (9, 9)).save(files[0])
    assert open_source(f"list:{table}").fingerprint() != before
    table.write_text("name\nb.png\n")
    with pytest.raises(UserError, match=r"expected a column path or .*, got name"):
        open_source(f"list:{table}")


TABLES = {
    "semicolons": "Path;label;Split\n{};x;Training\n",
    "tabs": "\ufeffpath\tlabel\tsplit\n{}\tx\ttrain\n",
    "a sign that is named": 'sep=;\r\nlabel;path ;split\r\n"x";"{}";TRAIN\r\n\r\n',
    "a form of Unicode": "path,label,split\ne\u0301;,x,train_set\n",
    "missing cells": "path,label,split,more\n{},x,train\n",
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_tables_are_read_as_spreadsheets_save_them(
    tmp_path: Path, name: str, encoding: str
) -> None:
    file = "é;" if name in ("tabs", "a form of Unicode") else "é, 1"
    file = file if "," not in TABLES[name] or ";" in file else f'"{file}"'
    text = TABLES[name].format(file).removeprefix("\ufeff" if encoding == "utf-16" else "")
    (tmp_path / "a.csv").write_text(text, encoding=encoding, newline="")
    Image.new("RGB", (4, 4)).save(tmp_path / file.strip('"'), "PNG")
    assert describe(f"list:{tmp_path / 'a.csv'}").parts == {
        "train": f"list:{tmp_path / 'a.csv'}@train"
    }
    source = open_source(f"list:{tmp_path / 'a.csv'}@train")
    assert (source.classes["class"], source.load(0).shape) == (("x",), (4, 4, 3))
    (tmp_path / "b.txt").write_text(f'"{file.strip(chr(34))}"\n', encoding=encoding)
    assert open_source(f"list:{tmp_path / 'b.txt'}").load(0).shape == (4, 4, 3)


@pytest.mark.parametrize("split", [True, False])
def test_a_table_of_labels_is_fitted_and_evaluated_as_its_folder_is(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: bool
) -> None:
    """A DataFrame, and its .csv, beside folders with a subfolder per class."""
    monkeypatch.chdir(tmp_path)
    root = photos if split else photos / "train"
    files = [*sorted((photos / "train").rglob("*.jpg"))]
    files += sorted((photos / "val").rglob("*.jpg")) + sorted((photos / "test").rglob("*.jpg"))
    rows = [(file, file.parent.name, file.parents[1].name) for file in files]
    table = pandas.DataFrame(rows, columns=["path", "label", "split"])
    table = table if split else table[table["split"] == "train"].drop(columns="split")
    table.to_csv(tmp_path / "photos.csv", index=False)
    values, classes = [], []
    for data in (root, table, f"list:{tmp_path / 'photos.csv'}"):
        (result,) = mast.evaluate(Pooled(), data, "knn", size=32)
        values.append(result.targets["class"].values)
        fitted = mast.fit(data, Pooled(), out=f"fitted{len(values)}.safetensors", size=32)
        classes.append((fitted.classifier.classes, fitted.about["validation"]["top1"]))
    assert values[0] == values[1] == values[2]
    assert classes[0] == classes[1] == classes[2]
    if split:
        tables = {part: table[table["split"] == part].drop(columns="split")
                  for part in ("train", "val", "test")}  # fmt: skip
        (result,) = mast.evaluate(Pooled(), NamedSets(**tables), "knn", size=32)
        assert result.targets["class"].values == values[0]


def test_numbers_stay_whole_beside_a_missing_label(files: list[Path], tmp_path: Path) -> None:
    table = pandas.DataFrame({"path": files, "label": [1, None, 0]})
    source = open_source(as_spec(table, tmp_path))
    assert source.targets["class"].tolist() == [1, -1, 0]
    assert source.classes == {"class": ("0", "1")}


def test_files_tables_and_images_of_python_are_sets(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    relative = [path.relative_to(tmp_path) for path in files]
    table = pandas.DataFrame({"path": relative, "label": ["x", "y", "x"]})
    images = [Image.open(path) for path in files]
    other = images[0].copy()
    other.info["icc_profile"] = b"of other colors"
    assert set_name([other]) != set_name(images[:1])
    for photos in (files, list(map(str, relative)), table, table.path, images):
        source = open_source(set_name(photos))
        assert [int(source.load(at)[0, 0, 0]) for at in range(3)] == [0, 40, 80]
        assert set_name(photos) == set_name(photos)
    assert open_source(set_name(table)).classes == {"class": ("x", "y")}
    found = mast.duplicates([*files, files[0]], "resnet18", "exact", size=32, untrained=True)
    assert found.columns["level"] == ["first", "exact"]
    assert set(found.columns["path"]) == {str(files[0])}
    for wrong, message in (
        ([], "data: expected one or more"),
        ([files[0], 3], "or images, got PosixPath, int"),
    ):
        with pytest.raises(UserError, match=message):
            set_name(wrong)
