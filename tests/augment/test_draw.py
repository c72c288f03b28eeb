"""The one way in which views are drawn: a pure function of a place, whoever draws which part.

Legend: B samples, K operators.
"""

from functools import partial
from itertools import pairwise

import pytest
import torch

from mast.augment import (
    Pipeline,
    Preset,
    ScheduleConfig,
    View,
    Views,
    draw_chosen,
    draw_subsets,
    draw_views,
)
from mast.augment.operator import join
from mast.core.canvases import Canvases
from mast.core.seeds import stream

B, SIZE, PLACE = 12, 24, (3, 7, 0)
NAMES = ("random_resized_crop", "horizontal_flip", "color_jitter", "rotate")
PIPELINE = Pipeline(Preset(NAMES, (View(), View(), View(size=16))), SIZE)


def canvases(count: int, side: int = 32) -> Canvases:
    generator = torch.Generator().manual_seed(side)
    canvas = torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8, generator=generator)
    return Canvases.of(canvas, 0.7 + torch.rand(count, generator=generator))


def assert_equal(actual: Views, expected: Views) -> None:
    for view, record in enumerate(expected.records):
        assert torch.equal(actual.images[view], expected.images[view])
        assert torch.equal(actual.records[view].applied_BK, record.applied_BK)
        for name, drawn in record.parameters.items():
            for key, values in drawn.items():
                assert torch.equal(actual.records[view].parameters[name][key], values), (name, key)
    assert (actual.allowed_BK is None) == (expected.allowed_BK is None)
    if actual.allowed_BK is not None and expected.allowed_BK is not None:
        assert torch.equal(actual.allowed_BK, expected.allowed_BK)


def test_a_place_decides_the_views():
    batch = canvases(B)
    views = draw_views(PIPELINE, batch, PLACE)
    assert [tuple(images.shape[1:]) for images in views.images] == [(3, s, s) for s in (24, 24, 16)]
    assert views.allowed_BK is None
    assert_equal(draw_views(PIPELINE, batch, PLACE), views)
    assert_equal(PIPELINE.views(batch, PIPELINE.draw(B, stream(*PLACE))), views)
    for other in ((3, 7, 1), (3, 8, 0), (4, 7, 0)):
        assert not torch.equal(draw_views(PIPELINE, batch, other).images[0], views.images[0])


def test_a_buffer_changes_nothing_and_holds_the_views():
    batch, out = canvases(B), PIPELINE.buffer(B, torch.device("cpu")).fill_(torch.nan)
    views = draw_views(PIPELINE, batch, PLACE, out=out)
    assert_equal(views, draw_views(PIPELINE, batch, PLACE))
    assert torch.equal(torch.cat([images.flatten() for images in views.images]), out)


def test_the_choice_is_drawn_for_all_processes():
    counts = []

    def choose(count: int, generator: torch.Generator) -> torch.Tensor:
        counts.append(count)
        return draw_subsets(count, len(NAMES), 2, generator)

    batch = canvases(B)
    whole = draw_views(PIPELINE, batch, PLACE, choose)
    assert whole.allowed_BK is not None
    assert torch.equal(whole.allowed_BK, draw_subsets(B, len(NAMES), 2, stream(*PLACE)))
    for record in whole.records:
        assert not (record.applied_BK & ~whole.allowed_BK).any()
    bounds = (0, 3, 3, 8, B)  # one process has no image
    for first, last in pairwise(bounds):
        some = slice(first, last)
        views = draw_views(PIPELINE, batch[some], PLACE, choose, start=first, total=B)
        expected = Views(
            tuple(images[some] for images in whole.images),
            tuple(record[some] for record in whole.records),
            whole.allowed_BK[some],
        )
        assert_equal(views, expected)
    assert counts == [B] * 5


def test_canvases_of_several_sides_are_one_batch():
    groups = [canvases(5, 32), canvases(0, 40), canvases(7, 48)]
    views = draw_views(PIPELINE, Canvases.cat(groups), PLACE)
    records = PIPELINE.draw(B, stream(*PLACE))
    parts = [
        PIPELINE.views(group, tuple(record[some] for record in records))
        for group, some in ((groups[0], slice(0, 5)), (groups[2], slice(5, 12)))
    ]
    expected = Views(
        tuple(torch.cat(pair) for pair in zip(*(part.images for part in parts), strict=True)),
        tuple(join(pair) for pair in zip(*(part.records for part in parts), strict=True)),
    )
    assert_equal(views, expected)


@pytest.mark.parametrize(("progress", "most"), [(0.1, 1), (0.75, 2), (1.0, len(NAMES))])
def test_a_schedule_is_a_choice(progress: float, most: int):
    choose = partial(draw_chosen, ScheduleConfig(), len(NAMES), progress)
    views = draw_views(PIPELINE, canvases(B), PLACE, choose)
    assert views.active_BK.sum(dim=1).max() <= most
    assert (views.allowed_BK is None) == (most == len(NAMES))
