"""Which shards there are: found, counted once, and counted again where they changed."""

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from sharded import write_shards

from mast.core.errors import UserError
from mast.data.shards.source import Shards


def test_shards_are_found_by_folder_and_pattern(tmp_path):
    root = write_shards(tmp_path / "set", 3, 0, 5)
    for pattern in ("", "/*.tar", "/train-{000..002}.tar", "/train-00[0-2].tar"):
        index = Shards(f"shards:{root}{pattern}", tmp_path / "cache")
        assert index.table.count_S.tolist() == [3, 0, 5]


ENTRY = '{"shardlist": [{"url": "train-000.tar", "nsamples": %s}]}'
WRONG = ["1e400", '"three"', "[]"]
NO_INDEX = [
    "", "[]", '{"shardlist": {"a": 1}}', '{"shardlist": [{}]}', '{"shardlist": ["a"]}',
    *(ENTRY % wrong for wrong in WRONG),
    '{"shardlist": [{"url": 3, "nsamples": 3}]}',
    '{"shardlist": [], "classes": "abc"}', '{"shardlist": [], "classes": ["a", 1]}',
    '{"shardlist": %s}' % (100_000 * "["),
]  # fmt: skip


def test_an_index_that_is_none_is_refused(tmp_path):
    root = write_shards(tmp_path / "set", 3)
    for text in NO_INDEX:
        (root / "index.json").write_text(text)
        with pytest.raises(UserError, match=r"index\.json .*is not an index of shards") as caught:
            Shards(f"shards:{root}", tmp_path / "cache")
        assert len(str(caught.value)) < 400


def test_shards_that_are_not_there_are_told_of_and_never_looked_for(tmp_path, caplog):
    """Of a folder alone: a pattern may leave some out."""
    root = write_shards(tmp_path / "set", 3)
    away = ["train-001.tar", "../other.tar", "/etc/a.tar", "http://localhost:1/a.tar"]
    entries = [{"url": name, "nsamples": 9} for name in away]
    (root / "index.json").write_text(json.dumps({"shardlist": entries}))
    assert len(Shards(f"shards:{root}/*.tar", tmp_path / "cache")) == 3
    assert not caplog.records
    assert len(Shards(f"shards:{root}", tmp_path / "cache")) == 3
    assert "4 shards in its index.json are missing" in caplog.text


@pytest.mark.parametrize("said", [0, 2, 4])
def test_an_index_that_says_another_count_is_named(tmp_path, said):
    root = write_shards(tmp_path / "set", 3)
    entry = {"url": "train-000.tar", "nsamples": said}
    (root / "index.json").write_text(json.dumps({"shardlist": [entry]}))
    with pytest.raises(UserError, match=rf"train-000\.tar: expected {said} samples, .* got 3"):
        Shards(f"shards:{root}", tmp_path)


def test_a_class_that_the_index_does_not_name_is_refused(tmp_path):
    root = write_shards(tmp_path / "set", 9)  # of three classes
    (root / "index.json").write_text('{"shardlist": [], "classes": ["a", "b"]}')
    message = r"set: expected 3 class names or none in index\.json, got 2"
    with pytest.raises(UserError, match=message):
        Shards(f"shards:{root}", tmp_path)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, caplog):
    root = write_shards(tmp_path / "set", 3)
    (tmp_path / "file").write_text("")
    assert len(Shards(f"shards:{root}", tmp_path / "file" / "cache")) == 3
    assert "cannot be cached" in caplog.text


def test_a_folder_of_any_name_is_found(tmp_path):
    for name in ("a[1]", "b?c", "d{1,2}"):
        root = write_shards(tmp_path / name, 3)
        assert len(Shards(f"shards:{root}", tmp_path / "cache")) == 3
    assert len(Shards(f"shards:{tmp_path}/{{a*,nowhere*}}/*.tar", tmp_path / "cache")) == 3


def test_over_http(tmp_path):
    root = write_shards(tmp_path / "set", 3, 5)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    handler.func.log_message = lambda *_: None  # type: ignore[method-assign]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}/set"
        for name in (f"{place}/", f"{place}/*.tar", f"{place}/train-{{000..001}}.tar"):
            index = Shards(f"shards:{name}", tmp_path / "cache")
            assert index.table.count_S.tolist() == [3, 5]
        local = Shards(f"shards:{root}", tmp_path / "cache")
        assert index.encoded(range(8)) == local.encoded(range(8))
        assert index.order_fingerprint() == local.order_fingerprint()
        server.shutdown()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shards:{root}/nowhere", "cannot be found"),
        ("shards:{root}/empty", "got no shard"),
        ("shards:{root}/*.tar", "got no shard"),
        ("shards:nonsense://x/y.tar", "Protocol not known: nonsense"),
        ("shards:{root}/{{a", "cannot be found"),
        ("shards:{root}/broken", r"the shard .*broken/a\.tar cannot be read"),
        ("shards:{root}/none", "expected images in"),
    ],
)
def test_what_is_no_set_of_shards_is_refused(tmp_path, name, says):
    for folder in ("empty", "broken", "none"):
        (tmp_path / folder).mkdir()
    (tmp_path / "broken" / "a.tar").write_bytes(b"nonsense" * 200)
    (tmp_path / "none" / "a.tar").write_bytes(bytes(10240))
    with pytest.raises(UserError, match=says):
        Shards(name.format(root=tmp_path), tmp_path / "cache")
