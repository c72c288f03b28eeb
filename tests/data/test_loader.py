"""The order of batches, resuming, and the background thread."""

import threading
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import stacked

from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.data.loader import Loader
from mast.data.pixels import Pixels


def numbered(count):
    """A set whose canvas i is filled with i."""
    images = np.broadcast_to(
        np.arange(count, dtype=np.uint8)[:, None, None, None], (count, 2, 2, 3)
    )
    return CanvasSet(
        name="numbered",
        pixels=Pixels.of(images),
        aspect_N=np.arange(count, dtype=np.float32),
        targets={},
        classes={},
        identifiers=tuple(map(str, range(count))),
        fingerprint="",
    )


def indices(loader, epoch, start_step=0):
    return [batch.index_B.tolist() for batch in loader.epoch(epoch, start_step)]


def alive():
    return [thread for thread in threading.enumerate() if thread.name.startswith("mast-prefetch")]


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


def test_batch_holds_what_its_indices_say():
    loader = Loader(numbered(40), 8, 0)
    for batch in loader.epoch(0):
        pixels_BHWC = stacked(batch.canvases)
        assert pixels_BHWC.dtype == np.uint8
        assert pixels_BHWC.shape == (8, 2, 2, 3)
        assert (pixels_BHWC == batch.index_B[:, None, None, None].numpy()).all()
        assert torch.equal(batch.canvases.aspect_B, batch.index_B.float())


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


def test_an_epoch_is_a_function_of_seed_epoch_and_start():
    loader = Loader(numbered(64), 8, 1)
    whole = indices(loader, 4)
    assert len(whole) == loader.steps_per_epoch == 8
    assert indices(loader, 3) != whole != indices(Loader(numbered(64), 8, 2), 4)
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


def test_batches_that_cannot_be_made():
    with pytest.raises(UserError, match="set batch_size to 10 or less"):
        Loader(numbered(10), 11, 0)
    with pytest.raises(UserError, match="has 1 image, fewer than one batch of 8: give more"):
        Loader(numbered(1), 8, 0)  # as a batch of one is refused
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
