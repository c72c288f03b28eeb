"""Images of shards one by one: the same as of what they were made of, found by a table that is made
once."""

import io
import json
import os
from functools import partial

import numpy as np
import pytest
from PIL import Image
from sharded import encoded, numbers, write_shards
from tiny import stacked
from webdataset import TarWriter

from mast.commands.shard import shard
from mast.core.errors import UserError
from mast.data import BrokenImageError, open_canvas, open_source
from mast.data.canvas import DataConfig
from mast.data.registry import describe
from mast.data.shards import table as module
from mast.data.shards.store import find_shards
from mast.data.shards.table import open_table

SIDE = 24


def test_shards_of_a_folder_are_the_folder(photos, tmp_path, monkeypatch):
    made = shard(photos / "train", tmp_path / "set", size=SIDE, format="bmp", images=20)
    monkeypatch.setattr(module, "scan_shard", lambda *_, **__: pytest.fail("scanned again"))
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
        assert height * width <= 1.1 * SIDE**2
        assert width / height == pytest.approx(expected[1], rel=0.05)
    assert not places
    assert source.classes == folder.classes


def test_tars_of_others(tmp_path):
    root = write_shards(tmp_path / "set", 5, 0, 7)
    source = open_source(f"shards:{root}", tmp_path)
    assert [source.identifier(index) for index in (0, 4, 5)] == [
        "train-000/00000", "train-000/00004", "train-002/00005",
    ]  # fmt: skip
    canvases = np.stack([source.canvas(index, 12)[0] for index in range(12)])
    assert numbers(canvases) == list(range(12))
    assert source.load(3).shape == (12, 12, 3)
    assert source.classes == {"class": ("0", "1", "2")}
    (root / "index.json").write_text(json.dumps({"shardlist": [], "classes": ["a", "b", "c"]}))
    named = open_source(f"shards:{root}", tmp_path)
    assert named.classes == {"class": ("a", "b", "c")}
    for labelled in (source, named):
        assert labelled.targets["class"].tolist() == [number % 3 for number in range(12)]


def test_a_table_is_made_once_and_again_where_shards_changed(tmp_path, monkeypatch, caplog):
    root, looked = write_shards(tmp_path / "set", 3, 4), list[str]()
    look = module.scan_shard
    monkeypatch.setattr(
        module, "scan_shard", lambda url, *of, **a: (looked.append(url), look(url, *of, **a))[1]
    )
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
    assert "it is rebuilt" in caplog.text


def test_a_shard_that_is_gone_is_no_broken_image(tmp_path):
    root = write_shards(tmp_path / "set", 3)
    source, tiles = (open_source(f"shards:{root}{cut}", tmp_path) for cut in ("", "#tile=6"))
    (file,) = root.glob("*.tar")
    file.write_bytes(file.read_bytes()[:600])
    for look in (
        source.load, partial(source.canvas, side=12), partial(source.test_view, size=12),
        lambda _: tiles.canvas(len(tiles) - 1, 6),
    ):  # fmt: skip
        with pytest.raises(UserError, match="ends before byte") as error:
            look(2)
        assert not isinstance(error.value, BrokenImageError)


def test_an_edit_in_place_is_noticed(tmp_path):
    """Where names and sizes stay, by the time of the file."""
    root, seen = tmp_path / "set", list[list[int]]()
    root.mkdir()
    for gray in (10, 200):
        with TarWriter(str(root / "a.tar")) as tar:
            for number in range(3):
                file = io.BytesIO()
                Image.new("RGB", (16, 16), (gray + number,) * 3).save(file, "BMP")
                tar.write({"__key__": f"{number}", "bmp": file.getvalue()})
        os.utime(root / "a.tar", (gray, gray))
        canvases = open_canvas(DataConfig(f"shards:{root}", cache=tmp_path / "cache"), 16)
        seen.append(stacked(canvases)[:, 0, 0, 0].tolist())
    assert seen == [[10, 11, 12], [200, 201, 202]]


def test_names_tell_shards_of_several_folders_apart(tmp_path):
    for folder in ("a", "b"):
        write_shards(tmp_path / folder, 2)
    source = open_source(f"shards:{tmp_path}/{{a,b}}/*.tar", tmp_path)
    assert [source.identifier(index) for index in range(4)] == [
        f"{folder}/train-000/0000{number}" for folder in "ab" for number in range(2)
    ]


LABELS = {b"99999999999999999999": -1, b"-5": -1, b"x": -1, b"2": 2}
KNOWN = {
    b"[]": (np.nan, None), b"{": (np.nan, None), b'{"aspect": "nan", "name": null}': (np.nan, None),
    b'{"aspect": -1, "name": "\\ud800x"}': (np.nan, None),
    b'{"aspect": 0.5, "name": "a/b"}': (0.5, "a/b"),
}  # fmt: skip


def test_what_others_write_in_place_of_numbers(tmp_path):
    root = tmp_path / "set"
    root.mkdir()
    with TarWriter(str(root / "a.tar")) as tar:
        for number, label in enumerate(LABELS):
            tar.write({"__key__": f"l{number}", "png": encoded(0), "cls": label})
        for number, known in enumerate(KNOWN):
            tar.write({"__key__": f"k{number}", "canvas.png": encoded(0), "json": known})
    table = open_table("set", find_shards(str(root)), tmp_path)
    assert table.label_N.tolist() == [*LABELS.values(), *[-1] * len(KNOWN)]
    for at, (aspect, name) in enumerate(KNOWN.values(), len(LABELS)):
        assert np.array_equal(table.aspect_N[at], aspect, equal_nan=True)
        assert table.name(at) == (name or f"a/k{at - len(LABELS)}")


def test_parts_are_folders_or_names(tmp_path):
    write_shards(tmp_path / "train", 2)
    assert describe(f"shards:{tmp_path}").parts == {"train": f"shards:{tmp_path}/train"}
    assert describe(f"shards:{tmp_path / 'train'}").parts == {
        "train": f"shards:{tmp_path / 'train'}/train-*"
    }
    write_shards(tmp_path / "hub[1]", 1, 1)
    (tmp_path / "hub[1]" / "train-001.tar").rename(tmp_path / "hub[1]" / "validation-001.tar")
    parts = describe(f"shards:{tmp_path / 'hub[1]'}").parts
    assert [len(open_source(spec, tmp_path)) for spec in parts.values()] == [1, 1]
    assert list(parts) == ["train", "val"]
    write_shards(tmp_path / "more", 2)
    (tmp_path / "more" / "train-000.tar").rename(tmp_path / "more" / "a.tar")
    whole = f"shards:{tmp_path / 'more'}"
    assert describe(whole).parts == {"all": whole}
