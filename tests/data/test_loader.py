"""The order of batches, resuming, and the background thread."""

import threading
import time
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import stacked

from mast.core.errors import UserError
from mast.data import CanvasSet, Loader
from mast.data.cache import InMemory


def numbered(count):
    """A set whose canvas i is filled with i."""
    images = np.broadcast_to(
        np.arange(count, dtype=np.uint8)[:, None, None, None], (count, 2, 2, 3)
    )
    return CanvasSet(
        name="numbered",
        pixels=InMemory.of(images),
        aspect_N=np.arange(count, dtype=np.float32),
        targets={},
        classes={},
        identifiers=tuple(map(str, range(count))),
        fingerprint="",
    )


def indices(loader, epoch, start_step=0):
    return [batch.index_B.tolist() for batch in loader.epoch(epoch, start_step)]


def alive():
    return [thread for thread in threading.enumerate() if thread.name == "mast-prefetch"]


@settings(max_examples=30, deadline=None)
@given(
    per_rank=st.integers(1, 4), world=st.integers(1, 4), extra=st.integers(0, 30),
    seed=st.integers(0, 2**31), epoch=st.integers(0, 5),
)  # fmt: skip
def test_ranks_together_see_what_one_would(per_rank, world, extra, seed, epoch):
    size = per_rank * world
    canvases = numbered(size + extra)
    alone = indices(Loader(canvases, size, seed), epoch)
    ranks = [
        indices(Loader(canvases, size, seed, rank=rank, world_size=world), epoch)
        for rank in range(world)
    ]
    assert alone == [[*chain(*parts)] for parts in zip(*ranks, strict=True)]
    seen = [*chain(*alone)]
    assert len(set(seen)) == len(seen) == len(canvases) // size * size


def test_order_is_pure_and_differs_between_epochs_and_seeds():
    canvases = numbered(64)
    first = indices(Loader(canvases, 16, 3), 2)
    assert first == indices(Loader(canvases, 16, 3), 2)
    assert first != indices(Loader(canvases, 16, 3), 1)
    assert first != indices(Loader(canvases, 16, 4), 2)


def test_batch_holds_what_its_indices_say():
    loader = Loader(numbered(40), 8, 0)
    for step, batch in enumerate(loader.epoch(0)):
        pixels_BHWC = stacked(batch.canvases)
        assert pixels_BHWC.dtype == np.uint8
        assert pixels_BHWC.shape == (8, 2, 2, 3)
        assert (pixels_BHWC == batch.index_B[:, None, None, None].numpy()).all()
        assert torch.equal(batch.canvases.aspect_B, batch.index_B.float())
        np.testing.assert_array_equal(batch.index_B, loader.indices(0, step))


def test_a_resident_set_gives_the_same_batches():
    canvases = numbered(40)
    assert canvases.resident(torch.device("cpu"), limit_gb=479e-9) is None
    resident = canvases.resident(torch.device("cpu"), limit_gb=480e-9)
    loaders = Loader(canvases, 8, 0), Loader(canvases, 8, 0)
    loaders[1].resident = resident
    for mapped, gathered in zip(*(loader.epoch(3) for loader in loaders), strict=True):
        assert np.array_equal(stacked(gathered.canvases), stacked(mapped.canvases))
        assert torch.equal(gathered.canvases.aspect_B, mapped.canvases.aspect_B)
        assert torch.equal(gathered.index_B, mapped.index_B)


def test_resumed_epoch_is_the_tail():
    loader = Loader(numbered(64), 8, 1)
    whole = indices(loader, 4)
    assert len(whole) == loader.steps_per_epoch == 8
    for start in (0, 3, 7, 8):
        assert indices(loader, 4, start) == whole[start:]


def test_stopping_early_leaves_no_thread():
    loader = Loader(numbered(64), 2, 1)
    batches = loader.epoch(0)
    next(batches)
    assert alive()
    batches.close()
    assert not alive()
    for _ in loader.epoch(1):
        break  # the iterator is dropped here
    assert not alive()


def test_the_queue_is_bounded(monkeypatch):
    loader = Loader(numbered(64), 2, 1)
    made = []
    original = loader._batch
    monkeypatch.setattr(loader, "_batch", lambda index_B: made.append(1) or original(index_B))
    batches = loader.epoch(0)
    next(batches)
    time.sleep(0.3)
    assert len(made) <= 5
    batches.close()


def test_exception_reaches_the_consumer(monkeypatch):
    loader = Loader(numbered(64), 8, 1)
    original = loader._batch
    calls = []

    def failing(index_B):
        calls.append(1)
        if len(calls) == 3:
            raise UserError("photo.jpg: it is gone")
        return original(index_B)

    monkeypatch.setattr(loader, "_batch", failing)
    batches = loader.epoch(0)
    assert [len(next(batches).index_B) for _ in range(2)] == [8, 8]
    with pytest.raises(UserError, match=r"photo\.jpg"):
        next(batches)
    assert not alive()


def test_set_smaller_than_a_batch():
    with pytest.raises(UserError, match="set batch_size to 10 or less"):
        Loader(numbered(10), 11, 0)


def test_ranks_that_cannot_share():
    with pytest.raises(UserError, match="multiple of 3"):
        Loader(numbered(10), 4, 0, rank=1, world_size=3)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_batches_are_pinned_for_a_gpu_alone(device, monkeypatch):
    """Also on a machine that has a GPU which this run does not use."""
    pinned = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda part: (pinned.append(part), part)[1])
    next(Loader(numbered(4), 4, seed=0, device=torch.device(device)).epoch(0))
    assert len(pinned) == (1 if device == "cuda" else 0)
