"""The one way in which views are drawn: a pure function of a place, whoever draws which part.

Legend: B samples, K operators.
"""

from dataclasses import replace
from itertools import pairwise

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
from mast.augment.draw import compose_count
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


def test_a_place_decides_the_views():
    batch = canvases(B)
    views = draw_views(PIPELINE, batch, PLACE)
    assert [tuple(images.shape[1:]) for images in views.images] == [(3, s, s) for s in (24, 24, 16)]
    assert_equal(draw_views(PIPELINE, batch, PLACE), views)
    assert_equal(PIPELINE.views(batch, PIPELINE.draw(B, stream(*PLACE))), views)
    for other in ((3, 7, 1), (3, 8, 0), (4, 7, 0)):
        assert not torch.equal(draw_views(PIPELINE, batch, other).images[0], views.images[0])


def test_the_choice_is_drawn_for_all_processes():
    counts = []

    def choose(count: int, generator: torch.Generator) -> torch.Tensor:
        counts.append(count)
        return draw_subsets(count, len(NAMES), 2, generator)

    batch = canvases(B)
    whole = draw_views(PIPELINE, batch, PLACE, choose)
    allowed_BK = draw_subsets(B, len(NAMES), 2, stream(*PLACE))
    for record in whole.records:
        assert not (record.applied_BK & ~allowed_BK).any()
    bounds = (0, 3, 3, 8, B)  # one process has no image
    for first, last in pairwise(bounds):
        some = slice(first, last)
        views = draw_views(PIPELINE, batch[some], PLACE, choose, start=first, total=B)
        expected = Views(
            tuple(images[some] for images in whole.images),
            tuple(record[some] for record in whole.records),
        )
        assert_equal(views, expected)
    assert counts == [B] * 5


def test_count_follows_the_formula():
    assert [compose_count(p, 5) for p in (0, 0.49, 0.5, 0.6, 0.75, 0.9, 1)] == [1, 1, 1, 2, 3, 4, 5]
    assert compose_count(1.0, 5, stage1=1.0) == 1


def test_subsets_have_exactly_their_size_and_are_uniform():
    chosen = draw_subsets(20_000, 6, 2, torch.Generator().manual_seed(0)).float()
    assert (chosen.sum(dim=1) == 2).all()
    assert (chosen.mean(dim=0) - 1 / 3).abs().max() < 0.015
    pairs = chosen.T @ chosen / len(chosen)
    assert (pairs[~torch.eye(6, dtype=torch.bool)] - 1 / 15).abs().max() < 0.01


def test_a_share_of_whole_compositions_loses_operators():
    generator = torch.Generator().manual_seed(0)
    config = ScheduleConfig(staged=False, leave_out=0.5)
    chosen = draw_chosen(config, 5, 0.2, 20_000, generator)
    assert chosen is not None
    missing = (~chosen).float()
    assert missing.sum(dim=1).max() == 1
    # Each of the five is the one left out of a tenth of the pairs.
    assert (missing.mean(dim=0) - 0.1).abs().max() < 0.01
    assert draw_chosen(config, 1, 0.2, 4, generator) is None  # a lone operator stays
    early = draw_chosen(replace(config, staged=True), 5, 0.2, 4, generator)
    assert early is not None
    assert early.sum(dim=1).tolist() == [1] * 4
