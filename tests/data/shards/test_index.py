"""Which shards there are: found, counted once, and counted again where they changed."""

import json
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from sharded import encoded, write_shards

from mast.core.errors import UserError
from mast.data.shards import index as module
from mast.data.shards import open_index


@pytest.mark.parametrize(
    "pattern", ["", "/*.tar", "/train-{000..002}.tar", "/train-00[0-2].tar", "/train-00?.tar"]
)
def test_shards_are_found_by_folder_and_pattern(pattern: str, tmp_path: Path) -> None:
    root = write_shards(tmp_path / "set", 3, 0, 5)
    index = open_index(f"shards:{root}{pattern}", tmp_path / "cache")
    assert index.counts.tolist() == [3, 0, 5]
    assert len(index) == 8
    assert [shard.size for shard in index.shards] == [
        file.stat().st_size for file in sorted(root.iterdir())
    ]


def test_shards_are_counted_once_and_again_where_they_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, cache = write_shards(tmp_path / "set", 3, 4), tmp_path / "cache"
    counted: list[str] = []
    count = module._count
    monkeypatch.setattr(module, "_count", lambda url: (counted.append(url), count(url))[1])
    first = open_index(f"shards:{root}", cache)
    assert len(counted) == 2
    assert open_index(f"shards:{root}", cache).fingerprint == first.fingerprint
    assert len(counted) == 2
    (root / "train-001.tar").write_bytes((root / "train-000.tar").read_bytes())
    changed = open_index(f"shards:{root}", cache)
    assert [Path(url).name for url in counted[2:]] == ["train-001.tar"]
    assert changed.counts.tolist() == [3, 3]
    assert changed.fingerprint != first.fingerprint


def test_damaged_counts_are_counted_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root, cache = write_shards(tmp_path / "set", 3, 4), tmp_path / "cache"
    open_index(f"shards:{root}", cache)
    (file,) = cache.glob("*.shards.json")
    file.write_text(file.read_text().replace(" 4", " 5"))
    assert len(open_index(f"shards:{root}", cache)) == 7
    assert "is damaged" in caplog.text


def test_an_index_beside_the_shards_is_believed_where_sizes_agree(
    tmp_path: Path,
) -> None:
    root = write_shards(tmp_path / "set", 3, 4)
    files = sorted(root.glob("*.tar"))
    entries = [
        {"url": file.name, "nsamples": 9, "filesize": file.stat().st_size + wrong}
        for file, wrong in zip(files, (0, 1), strict=True)
    ]
    (root / "index.json").write_text(json.dumps({"shardlist": entries, "classes": ["a", "b"]}))
    index = open_index(f"shards:{root}", tmp_path / "cache")
    assert index.counts.tolist() == [9, 4]
    assert index.classes == ("a", "b")


def test_parquet_is_counted_by_its_footer(tmp_path: Path) -> None:
    images = [{"bytes": encoded(number), "path": None} for number in range(5)]
    table = pyarrow.table({"label": [0, 1, 0, 1, 0], "image": images})
    (tmp_path / "set").mkdir()
    parquet.write_table(table, tmp_path / "set" / "train.parquet", row_group_size=2)
    assert len(open_index(f"shards:{tmp_path / 'set'}", tmp_path / "cache")) == 5


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shards:{root}/nowhere", "cannot be found"),
        ("shards:{root}/empty", "names no shard"),
        ("shards:{root}/*.tar", "names no shard"),
        ("shards:nonsense://x/y.tar", "Protocol not known: nonsense"),
        ("shards:{root}/{{a", "cannot be opened"),
        ("shards:{root}/broken", r"the shard .*broken/a\.tar cannot be read"),
        ("shards:{root}/none", "no image in them"),
    ],
)
def test_what_is_no_set_of_shards_is_refused(tmp_path: Path, name: str, says: str) -> None:
    for folder in ("empty", "broken", "none"):
        (tmp_path / folder).mkdir()
    (tmp_path / "broken" / "a.tar").write_bytes(b"nonsense" * 200)
    (tmp_path / "none" / "a.tar").write_bytes(bytes(10240))
    with pytest.raises(UserError, match=says):
        open_index(name.format(root=tmp_path), tmp_path / "cache")
