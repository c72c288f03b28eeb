"""A store that takes a connection and says nothing is named soon; a signal ends the wait for it."""

import gc
import signal
import socket
import threading
import time
from contextlib import contextmanager

import fsspec
import pytest
from sharded import loader_of, write_shards

from mast.core.errors import UserError
from mast.data.registry import describe
from mast.data.shards import store as module
from mast.data.shards.source import Shards

SOON = 10.0  # seconds, of the 30 that a store is given: a busy machine takes some of them


@pytest.fixture
def silent(monkeypatch):
    """The address of a server that takes connections, and no more."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        for name, value in {
            "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_ENDPOINT_URL": address,
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        fsspec.filesystem("s3").clear_instance_cache()
        yield address
        fsspec.filesystem("s3").clear_instance_cache()


@pytest.fixture
def falls_silent(tmp_path, monkeypatch):
    """A set, scanned before, whose store says nothing after the first bytes of each shard."""
    root, over = write_shards(tmp_path / "set", 40, 40), threading.Event()
    loader = loader_of(root, tmp_path, 8, shuffle=16, max_broken=0.0)
    fetch = module._fetched

    def silent(url, at, size):
        if at >= 2**14:
            over.wait(60)
        return fetch(url, at, size)

    monkeypatch.setattr(module, "_fetched", silent)
    monkeypatch.setattr(module, "is_local", lambda url: False)
    monkeypatch.setattr(module, "BLOCK", 4096)
    yield root, loader
    over.set()


@contextmanager
def soon():
    started = time.monotonic()
    yield
    assert time.monotonic() - started < SOON
    left = [each.name for each in threading.enumerate() if each.name.startswith("mast")]
    assert not [name for name in left if name != "mast-store"]


@contextmanager
def asked_to_stop(after=0.1):
    """A signal comes, and is raised as a command has it.

    The system gives it to another thread, as it may: that does not wake the main thread. No
    garbage is collected meanwhile: Python drops what a handler raises in a weak reference's
    callback.
    """

    def ask(*_):
        raise KeyboardInterrupt

    def send():
        time.sleep(after)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, ask)
    timer = threading.Thread(target=send)
    gc.collect()
    gc.disable()
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        timer.join()
        gc.enable()
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("look", [Shards, lambda spec, _: describe(spec)])
def test_a_store_that_never_answers_is_named(silent, tmp_path, look, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    for name in (f"{silent}/set/", f"{silent}/set/a-{{000..009}}.tar", "s3://bucket/a-*.tar"):
        with soon(), pytest.raises(UserError, match=r"found: no answer in 0\.05 s") as caught:
            look(f"shards:{name}", tmp_path)
        assert name.rstrip("/") in str(caught.value)


def test_a_shard_whose_store_falls_silent_is_named(falls_silent, monkeypatch):
    root, loader = falls_silent
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    monkeypatch.setattr(module, "WAITS_S", (0.0,))
    says = r"train-00.\.tar cannot be read, tried 2 times: no answer in 0.1 s"
    with soon(), pytest.raises(UserError, match=says):
        list(loader.epoch(0))
    with soon(), pytest.raises(UserError, match=says):
        module.read_range(f"{root}/train-000.tar", 2**15, 100)


def test_a_signal_ends_the_wait_for_a_store(silent, tmp_path):
    with soon(), asked_to_stop():
        Shards(f"shards:{silent}/a-{{000..009}}.tar", tmp_path)


def test_a_signal_ends_the_wait_for_a_shard(falls_silent):
    """While a training waits for its batch."""
    batches = falls_silent[1].epoch(0)
    with soon():
        with asked_to_stop():
            list(batches)
        del batches
