"""Shards in an object store that fails and is slow: nothing is lost, and what is away is named."""

import re
import threading
from itertools import chain, count

import fsspec
import numpy as np
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from sharded import loader_of, numbers, write_shards
from tiny import stacked
from werkzeug.serving import make_server

from mast.core.errors import UserError
from mast.data import open_source
from mast.data.shards import Shards
from mast.data.shards import store as module

pytestmark = pytest.mark.slow  # importing the store and its client


class Unreliable:
    """An object store behind a bad network."""

    def __init__(self, store):
        self.store = store
        self.failing = False
        self.failed = 0
        self._reads = count()

    def __call__(self, environ, start_response):
        body = self.store(environ, start_response)
        if (
            not self.failing
            or environ["REQUEST_METHOD"] != "GET"
            or ".tar" not in environ["PATH_INFO"]
        ):
            return body
        number = next(self._reads)
        if number % 3 == 0:  # half of what was announced
            self.failed += 1
            content = b"".join(body)
            return [content[: len(content) // 2]]
        return body


@pytest.fixture
def store(monkeypatch):
    """S3, as moto has it; its bucket is called shards."""
    unreliable = Unreliable(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, unreliable, threaded=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    environment = {
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}", "AWS_MAX_ATTEMPTS": "1",
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").clear_instance_cache()
    if not fsspec.filesystem("s3").exists("shards"):  # one store for all tests
        fsspec.filesystem("s3").mkdir("shards")
    yield unreliable
    fsspec.filesystem("s3").clear_instance_cache()
    server.shutdown()


def seen(url, cache):
    loader = loader_of(url, cache, 8, shuffle=16, workers=2, max_broken=0.0)
    return [*chain(*(numbers(stacked(batch.canvases)) for batch in loader.epoch(0)))]


def test_nothing_is_lost(store, tmp_path, monkeypatch):
    root = write_shards(tmp_path / "shards", 16, 5, 11)
    for file in root.iterdir():
        fsspec.filesystem("s3").put(str(file), f"shards/train/{file.name}")
    monkeypatch.setattr(module, "WAITS_S", (0.0,) * 9)
    monkeypatch.setattr(module, "BLOCK", 20_000)
    store.failing = True
    assert seen("s3://shards/train", tmp_path) == seen(str(root), tmp_path)
    assert store.failed > 3
    failed, source = store.failed, open_source("shards:s3://shards/train", tmp_path)
    canvases = np.stack([source.canvas(index, 12)[0] for index in range(0, 32, 8)])
    assert numbers(canvases) == list(range(0, 32, 8))
    assert store.failed > failed


@pytest.mark.usefixtures("store")
def test_what_is_not_there_is_named(tmp_path):
    for name, says in (
        ("s3://shards/nowhere", "cannot be found"),
        ("s3://other/*.tar", "names no shard"),
    ):
        with pytest.raises(UserError, match=f"shards:{re.escape(name)} {says}"):
            Shards(f"shards:{name}", tmp_path)
