"""Shards in an object store are those of a folder, and what is not there is named."""

import re
import threading

import fsspec
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from sharded import loader_of
from werkzeug.serving import make_server

from mast.commands.shard import shard
from mast.core.errors import UserError
from mast.data.shards.source import Shards

pytestmark = pytest.mark.slow  # importing the store and its client


@pytest.fixture
def s3(monkeypatch):
    """An object store as moto has it, with a bucket that is called shards."""
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    environment = {
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}", "AWS_MAX_ATTEMPTS": "1",
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").clear_instance_cache()
    system = fsspec.filesystem("s3")
    system.mkdir("shards")
    yield system
    system.clear_instance_cache()
    server.shutdown()


def test_shards_of_a_store_are_those_of_a_folder(s3, tmp_path, monkeypatch):
    made = shard("factors@train:40", tmp_path / "set", size=12, images=16, format="bmp").path
    s3.put(f"{made}/", "shards/train/", recursive=True)
    monkeypatch.setattr(
        "mast.data.shards.table.scan_shard", lambda *_, **__: pytest.fail("scanned")
    )
    monkeypatch.setattr("mast.data.shards.store.BLOCK", 20_000)
    stored, local = (
        loader_of(url, tmp_path / "cache", 8, shuffle=16, max_broken=0.0)
        for url in ("s3://shards/train", made)
    )
    assert stored.fingerprint == local.fingerprint
    for one, other in zip(stored.epoch(0), local.epoch(0), strict=True):
        assert one.index_B.equal(other.index_B)
        assert one.canvases.values_T.equal(other.canvases.values_T)
    for name, says in (
        ("s3://shards/nowhere", "cannot be found"),
        ("s3://other/*.tar", "got no shard"),
    ):
        with pytest.raises(UserError, match=f"shards:{re.escape(name)}.* {says}"):
            Shards(f"shards:{name}", tmp_path)
