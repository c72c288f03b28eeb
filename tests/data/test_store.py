"""What is kept of images: known by content, shared by processes, whole whenever it is left."""

import os
import threading
from pathlib import Path
from random import Random

import numpy as np
import pytest
from faults.files import DAMAGES

from mast.core.errors import UserError
from mast.data.store import Facts, ImageStore, Kept, key_of

KEYS = [key_of(at) for at in range(40)]
VALUES_ND = np.random.default_rng(0).random((40, 3000), np.float32)


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
    changed = store.digests(files[1:])
    assert changed[0] != first[1]
    monkeypatch.setattr("hashlib.file_digest", None)
    assert store.digests(files[1:]) == changed
    nothing = [tmp_path / "folder", tmp_path / "none", Path("c\0d")]
    assert len({*store.digests(nothing), *store.digests(nothing)}) == 6  # never known again


def test_names_that_are_exchanged_are_noticed(tmp_path: Path) -> None:
    """Files of one size and time, as archives unpack them."""
    files = [tmp_path / name for name in "ab"]
    for file in files:
        file.write_text(file.name)
        os.utime(file, ns=(0, 0))
    store = ImageStore(tmp_path / "cache")
    first = store.digests(files)
    files[0].rename(tmp_path / "c")
    files[1].rename(files[0])
    (tmp_path / "c").rename(files[1])
    assert store.digests(files) == first[::-1]


def test_features_are_found_by_encoder_and_image(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    store.add_features("encoder", KEYS[:10], VALUES_ND[:10], "about")
    store.add_features("encoder", KEYS[10:], VALUES_ND[10:])
    features_ND, known_N = store.features("encoder", [*KEYS[::-1], b"unknown", KEYS[0]])
    assert np.array_equal(features_ND[:40], VALUES_ND[::-1])
    assert np.array_equal(features_ND[41], VALUES_ND[0])
    assert known_N.tolist() == [True] * 40 + [False, True]
    assert store.features("other", KEYS)[0].shape == (40, 0)
    assert store.kept() == [Kept("encoder", "about", 40, VALUES_ND.nbytes)]
    store.forget(["encoder"])
    assert not store.kept()
    store.add_features("encoder", KEYS, VALUES_ND)
    inode = store.file.stat().st_ino
    store.forget()  # while others may have it open
    assert store.file.stat().st_ino == inode
    assert not store.kept()


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


FACTS = dict(
    zip(
        KEYS,
        (Facts(3, 4, 4 / 3, 6, 8, 99, "", 0.5, 0.0, key, b"hashes", 1) for key in KEYS),
        strict=True,
    )
)


@pytest.mark.parametrize("how", ["a bit", "zeros", "noise", "cut short"])
def test_damage_anywhere_is_noticed_and_mended(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for at in range(15):
        store = ImageStore(tmp_path / f"{at}")
        store.digests([Path(__file__)])
        store.add_facts(FACTS)
        store.add_features("encoder", KEYS, VALUES_ND)
        DAMAGES[how](store.file, Random(at))
        store.kept()
        assert store.facts(KEYS).items() <= FACTS.items()
        features_ND, known_N = store.features("encoder", KEYS)
        assert np.array_equal(features_ND[known_N], VALUES_ND[known_N, : features_ND.shape[1]])
        store.add_facts(FACTS)
        store.add_features("encoder", KEYS, VALUES_ND)
        assert store.features("encoder", KEYS)[1].mean() > 0.8  # a key may not be found any more
        assert store.keeps
        assert caplog.text.count(f"{store.file} is damaged") <= 1
    assert ("damaged rows" if how == "a bit" else "recreating it") in caplog.text


def test_a_store_that_cannot_be_written_is_no_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file in place of the folder")
    for _ in range(2):
        store = ImageStore(tmp_path / "cache")
        store.add_features("encoder", KEYS, VALUES_ND)
        assert not store.features("encoder", KEYS)[1].any()
        assert store.digests([Path(__file__)]) == store.digests([Path(__file__)])
        assert store.kept() == []
    assert caplog.text.count("cannot cache in") == 1
    with pytest.raises(UserError, match="forget"):
        store.forget(["encoder"])


def test_a_pipe_in_place_of_the_file_is_not_waited_for(tmp_path: Path, in_time: None) -> None:
    store = ImageStore(tmp_path)
    store.add_features("encoder", KEYS, VALUES_ND)
    store.file.unlink()
    os.mkfifo(store.file)
    assert not store.features("encoder", KEYS)[1].any()
    store.add_features("encoder", KEYS, VALUES_ND)
