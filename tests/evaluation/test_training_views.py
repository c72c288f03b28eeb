"""Augmented views of labelled images: of several sets, by several processes.

B images of a batch.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny import stacked
from tiny_evaluation import tiny_set

from mast.augment import PRESETS, Pipeline, Preset, View
from mast.core.seeds import stream
from mast.data import CanvasSet
from mast.data.pixels import Pixels
from mast.evaluation.training_views import LabelledBatch, TrainingViews

SIZE = 24


def fabric(rank: int = 0, processes: int = 1) -> Any:
    return SimpleNamespace(
        device=torch.device("cpu"),
        global_rank=rank,
        world_size=processes,
        to_device=lambda tensor: tensor,
    )


@pytest.fixture(scope="module")
def pool() -> tuple[CanvasSet, CanvasSet]:
    """Two sets, the second with canvases of twice the side."""
    small, large = tiny_set(7, seed=0), tiny_set(6, seed=1)
    doubled = stacked(large).repeat(2, axis=1).repeat(2, axis=2)
    return small, replace(large, pixels=Pixels.of(doubled))


def batches(pool: tuple[CanvasSet, ...], where: Any, **settings: Any) -> list[LabelledBatch]:
    positions = torch.arange(0, sum(map(len, pool)), 2)
    views = TrainingViews(pool, positions, SIZE, batch_size=8, seed=5, **settings)
    return list(views.epoch(where, 1, 0))


def test_a_batch_is_the_first_view_of_its_place(pool: tuple[CanvasSet, ...]) -> None:
    crop = {"random_resized_crop": {"scale": (0.1, 0.2)}}
    operators = PRESETS["mast5"].operators
    drawn = batches(pool, fabric(), preset=Preset(operators, (View(crop, 16), View(size=8))))
    pipeline = Pipeline(Preset(operators, (View(crop),)), SIZE)
    assert sorted(torch.cat([batch.positions_B for batch in drawn]).tolist()) == [*range(0, 39, 2)]
    for rounded, exact in zip(
        batches(pool, fabric(), dtype=torch.bfloat16), batches(pool, fabric()), strict=True
    ):
        assert torch.equal(rounded.images_BCHW, exact.images_BCHW.bfloat16())
    for step, batch in enumerate(drawn):
        assert batch.total == len(batch.positions_B)
        assert batch.images_BCHW.shape == (batch.total, 3, SIZE, SIZE)
        (record,) = pipeline.draw(batch.total, stream(5, 1, step))
        for at, position in enumerate(batch.positions_B.tolist()):
            from_set, inside = (pool[0], position) if position < 21 else (pool[1], position - 21)
            canvas = from_set.batch(np.array([inside]))
            (expected,) = pipeline.views(canvas, (record[at : at + 1],)).images
            assert torch.equal(batch.images_BCHW[at], expected[0])


@pytest.mark.parametrize("compose", [None, 2])
def test_processes_share_a_batch(pool: tuple[CanvasSet, ...], compose: int | None) -> None:
    settings = {"preset": PRESETS["mast15"], "compose": compose}
    whole = batches(pool, fabric(), **settings)
    parts = [batches(pool, fabric(rank, 3), **settings) for rank in range(3)]
    for step, batch in enumerate(whole):
        shares = [part[step] for part in parts]
        assert [share.total for share in shares] == [batch.total] * 3
        positions = torch.cat([share.positions_B for share in shares])
        assert torch.equal(positions, batch.positions_B)
        pixels = torch.cat([share.images_BCHW for share in shares])
        assert torch.equal(pixels, batch.images_BCHW)
