"""Images of shards one by one: the same as of what they were made of, found by a table that is made
once."""

import json
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from sharded import encoded, numbers, write_shards

from mast.commands.shard import shard
from mast.core.errors import UserError
from mast.data import describe, open_canvas, open_source
from mast.data.canvas import DataConfig
from mast.data.shards import shard as reading
from mast.data.shards import table as module

SIDE = 24


def test_shards_of_a_folder_are_the_folder(photos: Path, tmp_path: Path) -> None:
    made = shard(photos / "train", tmp_path / "set", size=SIDE, format="bmp", images=20)
    folder, source = open_source(photos / "train"), open_source(f"shards:{made.path}", tmp_path)
    assert len(source) == len(folder) == 48
    places = {folder.identifier(index): index for index in range(len(folder))}
    for index in range(len(source)):
        at = places.pop(source.identifier(index))
        found, expected = source.canvas(index, SIDE), folder.canvas(at, SIDE)
        assert np.array_equal(found[0], expected[0])
        assert found[1] == pytest.approx(expected[1], rel=1e-6)  # kept as float32
        assert source.targets["class"][index] == folder.targets["class"][at]
        height, width, _ = source.load(index).shape  # the canvas, in the shape of the original
        assert max(height, width) == SIDE
        assert width / height == pytest.approx(expected[1], rel=0.05)
    assert not places
    assert source.classes == folder.classes


def test_canvases_of_shards_are_kept_as_those_of_a_folder(photos: Path, tmp_path: Path) -> None:
    made = shard(photos / "train", tmp_path / "set", size=SIDE, format="bmp", images=20)
    config = DataConfig(f"shards:{made.path}", canvas=SIDE, cache=tmp_path / "cache")
    canvases = open_canvas(config, 16)
    expected = open_canvas(
        DataConfig(str(photos / "train"), canvas=SIDE, cache=tmp_path / "cache"), 16
    )
    order = [expected.identifiers.index(name) for name in canvases.identifiers]
    assert np.array_equal(canvases.batch(range(48))[0], expected.batch(order)[0])


def test_tars_of_others(tmp_path: Path) -> None:
    root = write_shards(tmp_path / "set", 5, 0, 7)
    source = open_source(f"shards:{root}", tmp_path)
    assert [source.identifier(index) for index in (0, 4, 5)] == [
        "train-000/00000", "train-000/00004", "train-002/00005",
    ]  # fmt: skip
    canvases = np.stack([source.canvas(index, 12)[0] for index in range(12)])
    assert numbers(canvases) == list(range(12))
    assert source.load(3).shape == (12, 12, 3)
    assert source.targets == {}
    (root / "index.json").write_text(json.dumps({"shardlist": [], "classes": ["a", "b", "c"]}))
    named = open_source(f"shards:{root}", tmp_path)
    assert named.targets["class"].tolist() == [number % 3 for number in range(12)]


def test_a_class_without_a_name_leaves_out_all_labels(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = write_shards(tmp_path / "set", 6)
    (root / "index.json").write_text(json.dumps({"shardlist": [], "classes": ["a", "b"]}))
    assert open_source(f"shards:{root}", tmp_path).targets == {}
    assert "2 of 6 images have no class" in caplog.text


def test_a_table_is_made_once_and_again_where_shards_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root, looked = write_shards(tmp_path / "set", 3, 4), list[str]()
    look = module._look_through
    monkeypatch.setattr(module, "_look_through", lambda url: (looked.append(url), look(url))[1])
    first = open_source(f"shards:{root}", tmp_path).fingerprint()
    assert open_source(f"shards:{root}", tmp_path).fingerprint() == first
    assert len(looked) == 2
    (root / "train-001.tar").write_bytes((root / "train-000.tar").read_bytes())
    source = open_source(f"shards:{root}", tmp_path)
    assert (len(source), len(looked)) == (6, 4)
    changed = source.fingerprint()
    assert changed != first
    (file,) = tmp_path.glob("*.samples.safetensors")
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    assert open_source(f"shards:{root}", tmp_path).fingerprint() == changed
    assert "it is made anew" in caplog.text


def test_rows_of_parquet_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, groups = reading.read_rows, list[int]()
    monkeypatch.setattr(
        "mast.data.shards.source.read_rows", lambda url, at: (groups.append(at), read(url, at))[1]
    )
    root = tmp_path / "set"
    root.mkdir()
    images = [{"bytes": encoded(number), "path": "x"} for number in range(7)]
    table = pyarrow.table({"label": [number % 2 for number in range(7)], "image": images})
    parquet.write_table(table, root / "train-0.parquet", row_group_size=3)
    (root / "index.json").write_text(json.dumps({"shardlist": [], "classes": ["a", "b"]}))
    source = open_source(f"shards:{root}", tmp_path)
    assert source.targets["class"].tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert source.identifier(6) == "train-0/6"
    canvases = np.stack([source.canvas(index, 12)[0] for index in range(7)])
    assert numbers(canvases) == list(range(7))
    assert groups == [0, 3, 6]


def test_a_shard_that_is_gone_is_no_broken_image(tmp_path: Path) -> None:
    root = write_shards(tmp_path / "set", 3)
    source = open_source(f"shards:{root}", tmp_path)
    (file,) = root.glob("*.tar")
    file.write_bytes(file.read_bytes()[:600])
    with pytest.raises(UserError, match="ends before byte"):
        source.canvas(2, 12)


def test_parts_are_folders_or_names(tmp_path: Path) -> None:
    write_shards(tmp_path / "train", 2)
    assert describe(f"shards:{tmp_path}").parts == {"train": f"shards:{tmp_path}/train"}
    assert describe(f"shards:{tmp_path / 'train'}").parts == {
        "train": f"shards:{tmp_path / 'train'}/train-*"
    }
    write_shards(tmp_path / "more", 2)
    (tmp_path / "more" / "train-000.tar").rename(tmp_path / "more" / "a.tar")
    whole = f"shards:{tmp_path / 'more'}"
    assert describe(whole).parts == {"all": whole}
