"""Which shards there are: found, counted once, and counted again where they changed."""

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pyarrow
import pytest
from pyarrow import parquet
from sharded import encoded, write_shards

from mast.core.errors import UserError
from mast.data import open_source
from mast.data.shards import open_index


def test_shards_are_found_by_folder_and_pattern(tmp_path):
    root = write_shards(tmp_path / "set", 3, 0, 5)
    for pattern in ("", "/*.tar", "/train-{000..002}.tar", "/train-00[0-2].tar"):
        index = open_index(f"shards:{root}{pattern}", tmp_path / "cache")
        assert index.count_S.tolist() == [3, 0, 5]
        sizes = [file.stat().st_size for file in sorted(root.iterdir())]
        assert [shard.size for shard in index.shards] == sizes


def test_an_index_beside_the_shards_is_believed_where_sizes_agree(tmp_path):
    root = write_shards(tmp_path / "set", 3, 4)
    files = sorted(root.glob("*.tar"))
    for counts, wrong, found in (((9, 9), 0, [9, 9]), ((3, 9), 1, [3, 4])):
        sizes = [file.stat().st_size for file in files]
        entries = [
            {"url": file.name, "nsamples": count, "filesize": size}
            for file, count, size in zip(files, counts, (sizes[0], sizes[1] + wrong), strict=True)
        ]
        index = {"shardlist": entries, "classes": ["a", "b"]}
        (root / "index.json").write_text(json.dumps(index))
        assert open_index(f"shards:{root}", tmp_path / "cache").count_S.tolist() == found
        assert open_index(f"shards:{root}", tmp_path / "cache").classes == ("a", "b")


ENTRY = '{"shardlist": [{"url": "train-000.tar", "nsamples": %s, "filesize": %s}]}'
WRONG = ["-5", "1e400", "3.5", '"3"', "1" + 40 * "0"]
NO_INDEX = [
    "", "[]", '{"shardlist": {"a": 1}}', '{"shardlist": [{}]}', '{"shardlist": ["a"]}',
    *(ENTRY % (wrong, "null") for wrong in WRONG),
    '{"shardlist": [{"url": 3, "nsamples": 3}]}',
    '{"shardlist": [], "classes": "abc"}', '{"shardlist": [], "classes": ["a", 1]}',
    '{"shardlist": %s}' % (100_000 * "["),
]  # fmt: skip


def test_an_index_that_is_none_is_refused(tmp_path):
    root = write_shards(tmp_path / "set", 3)
    for text in NO_INDEX:
        (root / "index.json").write_text(text)
        with pytest.raises(UserError, match=r"index\.json .*is not an index of shards") as caught:
            open_index(f"shards:{root}", tmp_path / "cache")
        assert len(str(caught.value)) < 400


def test_shards_that_are_not_there_are_told_of_and_never_looked_for(tmp_path, caplog):
    """Of a folder alone: a pattern may leave some out."""
    root = write_shards(tmp_path / "set", 3)
    away = ["train-001.tar", "../other.tar", "/etc/a.tar", "http://localhost:1/a.tar"]
    entries = [{"url": name, "nsamples": 9} for name in away]
    (root / "index.json").write_text(json.dumps({"shardlist": entries}))
    assert len(open_index(f"shards:{root}/*.tar", tmp_path / "cache")) == 3
    assert not caplog.records
    assert len(open_index(f"shards:{root}", tmp_path / "cache")) == 3
    assert "4 shards that its index.json lists are missing" in caplog.text


@pytest.mark.parametrize(
    ("said", "kind"), [(0, "tar"), (2, "tar"), (4, "tar"), (2, "parquet"), (4, "parquet")]
)
def test_an_index_that_says_another_count_is_named(tmp_path, said, kind):
    root = write_shards(tmp_path / "set", 3)
    if kind == "parquet":
        (root / "train-000.tar").unlink()
        table = pyarrow.table({"image": [encoded(number) for number in range(3)]})
        parquet.write_table(table, root / "train-000.parquet")
    entry = {"url": f"train-000.{kind}", "nsamples": said}
    (root / "index.json").write_text(json.dumps({"shardlist": [entry]}))
    says = rf"train-000\.{kind} does not have {said} samples"
    with pytest.raises(UserError, match=says):
        open_source(f"shards:{root}", tmp_path)
    with pytest.raises(UserError, match=says):
        list(open_index(f"shards:{root}", tmp_path).shards[0].samples(0, said))


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, caplog):
    root = write_shards(tmp_path / "set", 3)
    (tmp_path / "file").write_text("")
    assert len(open_index(f"shards:{root}", tmp_path / "file" / "cache")) == 3
    assert "cannot be cached" in caplog.text


def test_a_folder_of_any_name_is_found(tmp_path):
    for name in ("a[1]", "b?c", "d{1,2}"):
        root = write_shards(tmp_path / name, 3)
        assert len(open_index(f"shards:{root}", tmp_path / "cache")) == 3
    assert len(open_index(f"shards:{tmp_path}/{{a*,nowhere*}}/*.tar", tmp_path / "cache")) == 3


def test_over_http(tmp_path):
    root = write_shards(tmp_path / "set", 3, 5)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    handler.func.log_message = lambda *_: None  # type: ignore[method-assign]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}/set"
        for name in (f"{place}/", f"{place}/*.tar", f"{place}/train-{{000..001}}.tar"):
            index = open_index(f"shards:{name}", tmp_path / "cache")
            assert index.count_S.tolist() == [3, 5]
        local = open_index(f"shards:{root}", tmp_path / "cache")
        assert [len([*shard.samples(0, 3)]) for shard in index.shards] == [3, 3]
        assert index.fingerprint == local.fingerprint
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shards:{root}/nowhere", "cannot be found"),
        ("shards:{root}/empty", "names no shard"),
        ("shards:{root}/*.tar", "names no shard"),
        ("shards:nonsense://x/y.tar", "Protocol not known: nonsense"),
        ("shards:{root}/{{a", "cannot be found"),
        ("shards:{root}/broken", r"the shard .*broken/a\.tar cannot be read"),
        ("shards:{root}/none", "has no image"),
    ],
)
def test_what_is_no_set_of_shards_is_refused(tmp_path, name, says):
    for folder in ("empty", "broken", "none"):
        (tmp_path / folder).mkdir()
    (tmp_path / "broken" / "a.tar").write_bytes(b"nonsense" * 200)
    (tmp_path / "none" / "a.tar").write_bytes(bytes(10240))
    with pytest.raises(UserError, match=says):
        open_index(name.format(root=tmp_path), tmp_path / "cache")
