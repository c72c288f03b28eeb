"""Batches from shards: every image once, the same ones after a stop, at other numbers of ranks."""

import random
from itertools import chain

import fsspec
import pytest
import sharded
import torch
from sharded import encoded, numbers, write_shards
from tiny import stacked
from webdataset import TarWriter

from mast.core.errors import UserError
from mast.data.shards import store


def loader_of(root, *place, **changed):
    """By default a batch of 8 of one process."""
    options = {"shuffle": 20, "workers": 2, "max_broken": 0.5} | changed
    return sharded.loader_of(root, root.parent / "cache", *(place or (8,)), **options)


def seen(batches):
    """Numbers of images, by their pixels, which their indices agree with."""
    found = [numbers(stacked(batch.canvases)) for batch in batches]
    assert found == [batch.index_B.tolist() for batch in batches]
    return [*chain(*found)]


@pytest.fixture
def shards(tmp_path):
    return write_shards(tmp_path / "shards", 30, 11, 0, 25, 37)  # 103 images


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_processes_together_see_what_one_does_wherever_an_epoch_goes_on(shards, ranks):
    whole = [seen([batch]) for batch in loader_of(shards).epoch(1)]
    assert len(whole) == 103 // 8
    assert len({*chain(*whole)}) == 96
    assert whole != [seen([batch]) for batch in loader_of(shards).epoch(0)]
    for start in (0, 5, 12):
        parts = [
            [seen([batch]) for batch in loader_of(shards, 8, rank, ranks).epoch(1, start)]
            for rank in range(ranks)
        ]
        assert [[*chain(*batch)] for batch in zip(*parts, strict=True)] == whole[start:]


def test_broken_images_are_counted_and_others_take_their_place(tmp_path, caplog):
    broken = (0, 7, 8, 9, 31)
    root = write_shards(tmp_path / "shards", 20, 20, broken=broken)
    loader = loader_of(root)
    batches = [*loader.epoch(0)]
    found = [*chain(*(numbers(stacked(batch.canvases)) for batch in batches))]
    assert loader.broken == 5
    assert set(found) == {*range(40)} - {*broken}
    assert len(found) == 40
    assert len(caplog.records) == 1
    assert "has broken images" in caplog.text
    worse = write_shards(tmp_path / "worse", 40, broken=tuple(range(0, 40, 2)))
    with pytest.raises(UserError, match=r"data\.max_broken: .* got \d+ of \d+ images"):
        [*loader_of(worse, max_broken=0.1).epoch(0)]
    one = write_shards(tmp_path / "one", 40, broken=(3,))
    with pytest.raises(
        UserError, match=r"data\.max_broken: expected 0 or less, got 1 of \d+ images"
    ):
        [*loader_of(one, max_broken=0.0).epoch(0)]


def test_a_batch_of_broken_images_is_gray_where_they_may_be(tmp_path):
    root = write_shards(tmp_path / "shards", 40, broken=tuple(range(36)))
    loader = loader_of(root, 2, max_broken=1.0)
    batches = [batch.canvases for batch in loader.epoch(0)]
    canvases = [batch.image(at) for batch in batches for at in range(len(batch))]
    assert loader.broken == 36
    assert len(canvases) == 40
    assert sum(bool((canvas == 128).all()) for canvas in canvases) > 20


def test_what_is_no_class_is_none(tmp_path):
    root = tmp_path / "set"
    root.mkdir()
    written = ["0", "1", "", "-1", "cat", ""]
    with TarWriter(str(root / "a.tar")) as tar:
        for number, label in enumerate(written):
            tar.write({"__key__": f"{number}", "png": encoded(number), "cls": label.encode()})
        tar.write({"__key__": "6", "png": encoded(6)})
        tar.write({"__key__": "7", "canvas.png": encoded(7)})  # and nothing that says its aspect
    (root / "index.json").write_text('{"shardlist": [], "classes": ["a", "b"]}')
    (batch,) = loader_of(root).epoch(0)
    assert batch.label_B is not None
    labels = dict(zip(batch.index_B.tolist(), batch.label_B.tolist(), strict=True))
    assert labels == {0: 0, 1: 1, 2: -1, 3: -1, 4: -1, 5: -1, 6: -1, 7: -1}
    watched = loader_of(root).watched()
    assert watched.targets["class"].tolist() == [0, 1]


def test_labels_come_with_their_images(shards):
    (batch, *_) = loader_of(shards).epoch(0)
    assert torch.equal(batch.label_B, batch.index_B % 3)
    (shards / "index.json").write_text('{"shardlist": [], "classes": ["a", "b", "c"]}')
    watched = loader_of(shards).watched()
    assert watched.classes == {"class": ("a", "b", "c")}
    assert watched.targets["class"].tolist() == [number % 3 for number in numbers(stacked(watched))]


def test_a_lost_connection_loses_nothing(shards, monkeypatch, caplog):
    """A store of which every second read fails, or ends early."""
    whole = seen([*loader_of(shards).epoch(0)])
    system, fetch = fsspec.filesystem("memory"), store._fetched

    def fails(url, at, size):
        chance = random.random()
        if chance < 0.3:
            raise ConnectionResetError("the store hung up")
        return fetch(url, at, size)[: size if chance > 0.5 else size // 2]

    for file in shards.iterdir():
        system.pipe(f"/set/{file.name}", file.read_bytes())
    monkeypatch.setattr(store, "WAITS_S", (0.0,) * 20)
    monkeypatch.setattr(store, "BLOCK", 5000)
    monkeypatch.setattr(store, "_fetched", fails)
    loader = sharded.loader_of(
        "memory://set", shards.parent, 8, shuffle=20, workers=2, max_broken=0.5
    )
    assert seen([*loader.epoch(0)]) == whole
    assert "the store hung up; retrying in 0 s" in caplog.text
