"""Sets that a table lists, and lists, tables and images of Python."""

from pathlib import Path

import numpy as np
import pandas
import pytest
from PIL import Image

import mast
from mast.core.errors import UserError
from mast.data import describe, open_source, set_name


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
    with pytest.raises(UserError, match=r"must have a column path or .*, got name"):
        open_source(f"list:{table}")


def test_files_tables_and_images_of_python_are_sets(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    relative = [path.relative_to(tmp_path) for path in files]
    table = pandas.DataFrame({"path": relative, "label": ["x", "y", "x"]})
    images = [Image.open(path) for path in files]
    for photos in (files, list(map(str, relative)), table, images):
        source = open_source(set_name(photos))
        assert [int(source.load(at)[0, 0, 0]) for at in range(3)] == [0, 40, 80]
        assert set_name(photos) == set_name(photos)
    assert open_source(set_name(table)).classes == {"class": ("x", "y")}
    found = mast.duplicates([*files, files[0]], "resnet18", 1, size=32, untrained=True)
    assert found.columns["kind"] == ["first", "exact"]
    assert set(found.columns["path"]) == {str(files[0])}
    for wrong, message in (
        ([], "data is empty"),
        ([files[0], 3], "or images, got PosixPath, int"),
    ):
        with pytest.raises(UserError, match=message):
            set_name(wrong)
