"""What is kept of images: known by content, shared by processes, whole whenever it is left."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from mast.data.store import ImageStore, key_of

KEYS = [key_of(at) for at in range(40)]
VALUES_ND = np.random.default_rng(0).random((40, 3), np.float32)


def test_a_file_is_read_once_and_known_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / name for name in ("a", "b", "c")]
    for file in files:
        file.write_bytes(file.name.encode())
    store = ImageStore(tmp_path / "cache")
    first = store.digests(files)
    assert len({*first}) == 3
    files[0].rename(tmp_path / "moved")
    (tmp_path / "folder").mkdir()
    assert store.digests([tmp_path / "moved"]) == first[:1]
    state = files[1].stat()
    files[1].write_bytes(b"d")
    os.utime(files[1], ns=(state.st_atime_ns, state.st_mtime_ns))  # as if it had not changed
    assert store.digests(files[1:]) == first[1:]
    assert store.recheck() == 2  # the one that was moved, too
    changed = store.digests(files[1:])
    assert changed[0] != first[1]
    monkeypatch.setattr("hashlib.file_digest", None)
    assert store.digests(files[1:]) == changed
    nothing = [tmp_path / "folder", tmp_path / "none", Path("c\0d")]
    assert len({*store.digests(nothing)}) == 3


def test_rows_are_found_whatever_a_killed_process_left(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    store.add_features("encoder", KEYS[:10], VALUES_ND[:10], "about")
    with (store.rows / "encoder.f32").open("ab") as file:
        file.write(b"seventeen bytes..")  # written, and not entered
    store.add_features("encoder", KEYS[10:], VALUES_ND[10:])
    features_ND, known_N = store.features("encoder", [*KEYS[::-1], b"unknown"])
    assert np.array_equal(features_ND[:-1], VALUES_ND[::-1])
    assert known_N.tolist() == [True] * 40 + [False]
    assert store.features("other", KEYS)[0].shape == (40, 0)
    assert [(kept.about, kept.images) for kept in store.kept()] == [("about", 40)]
    store.forget(["encoder"])
    assert not store.kept()
    assert not [*store.rows.iterdir()]


def test_several_write_at_once(tmp_path: Path) -> None:
    def write(of: int) -> None:
        store = ImageStore(tmp_path)
        for at in range(of, 40, 4):
            store.add_features("encoder", KEYS[at : at + 1], VALUES_ND[at : at + 1])

    threads = [threading.Thread(target=write, args=[of]) for of in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    features_ND, known_N = ImageStore(tmp_path).features("encoder", KEYS)
    assert known_N.all()
    assert np.array_equal(features_ND, VALUES_ND)


@pytest.mark.parametrize("content", [b"", b"no database" * 99])
def test_a_store_that_cannot_be_read_is_no_store(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ImageStore(tmp_path / "cache")
    if content:
        (tmp_path / "cache").mkdir()
        store.file.write_bytes(content)
    else:
        (tmp_path / "cache").write_text("a file in place of the folder")
    for _ in range(2):
        store.add_features("encoder", KEYS, VALUES_ND)
        assert not store.features("encoder", KEYS)[1].any()
        assert store.digests([Path(__file__)]) == store.digests([Path(__file__)])
        assert store.kept() == []
    assert caplog.text.count("nothing is kept for later calls") == 1
