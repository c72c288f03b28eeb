"""The pipeline: independent draws, attribution, replay, slices.

Legend: B samples, K operators.
"""

from dataclasses import replace

import pytest
import torch

from mast.augment import OPERATORS, PRESETS, Pipeline, Preset, Record, View
from mast.core.canvases import Canvases
from mast.core.errors import UserError
from mast.data.generated import BLUR

B, SIZE = 24, 32
# pairs of all operators; cubics of several sizes; one view
presets = pytest.mark.parametrize("name", ["mast19", "dino", "mae"])
both_ways = pytest.mark.parametrize("compiled", [False, True], ids=["PyTorch", "compiled"])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def batch() -> Canvases:
    """Images with structure at several scales, of areas of 700 to 4,800 and aspects of 1/2 to 2."""
    parts = []
    for coarse, aspect in zip(
        torch.rand(B, 1, 3, 7, 7, generator=generator()), torch.linspace(0.5, 2.0, B), strict=True
    ):
        side = 27 + 3 * (len(parts) % 15)
        size = [round(side / aspect.item() ** 0.5), round(side * aspect.item() ** 0.5)]
        image = torch.nn.functional.interpolate(coarse, size, mode="bicubic").clamp(0, 1)
        parts.append(Canvases.of((image * 255).to(torch.uint8).permute(0, 2, 3, 1)))
    return Canvases.cat(parts)


def one_view(pipeline: Pipeline, preset: Preset, batch, record, view: int = 0) -> torch.Tensor:
    """A view drawn by a pipeline that has no other."""
    overrides = preset.views[view].overrides
    alone = Pipeline(
        replace(preset, views=(View(overrides),)), pipeline.sizes[view], pipeline.compiled
    )
    return alone.views(batch, (record,)).images[0]


def test_some_operators_keep_their_order_and_what_a_view_changes():
    preset = PRESETS["vicreg"].only(["solarize", "grayscale"])
    assert preset.operators == ("grayscale", "solarize")
    assert [list(view.overrides) for view in preset.views] == [["solarize"], ["solarize"]]
    second = PRESETS["vicreg"].views[1].overrides
    assert preset.views[1] == View({"solarize": second["solarize"]})
    crops = Preset(("invert", "rotate"), (View(), View({"rotate": {"angle": (0, 9)}}, 16), View()))
    assert crops.only(["invert"]) == Preset(("invert",), (View(), View(size=16), View()))
    assert crops.only(["rotate"]) == Preset(("rotate",), crops.views)
    assert PRESETS["mast5"].only(PRESETS["mast5"].operators) == PRESETS["mast5"]
    for names, message in (([], "operators is empty"), (["solarise"], "Did you mean 'solarize'")):
        with pytest.raises(UserError, match=message):
            PRESETS["vicreg"].only(names)


FORGETTING = {
    "orientation": {"rotate"},
    "position": {"translate_x", "translate_y"},
    "sharpness": {"gaussian_blur"},
}


@pytest.mark.parametrize("factor", FORGETTING)
def test_views_that_forget_a_factor_hold_its_operators(factor):
    first, second = Pipeline(PRESETS[f"forget_{factor}"], SIZE).operators
    assert first == second
    always = {"random_resized_crop", "color_jitter", "grayscale"}
    assert set(first) == always | FORGETTING[factor]
    if factor == "sharpness":  # the blur exceeds that of the images
        drawn = first["gaussian_blur"].sample(999, generator())
        assert drawn["sigma"].max() > BLUR[-1] * SIZE
        assert first["gaussian_blur"].taps > 6 * BLUR[-1] * SIZE


@presets
def test_coins_are_independent_and_fair(name):
    pipeline = Pipeline(PRESETS[name], SIZE)
    source = generator()
    drawn = pipeline.draw(20_000, source)
    for view, record in enumerate(drawn):
        expected = torch.tensor([op.probability for op in pipeline.operators[view].values()])
        assert (record.applied_BK.float().mean(dim=0) - expected).abs().max() < 0.015
    first, second = (*drawn, *pipeline.draw(20_000, source))[:2]  # some have one view
    both = (first.applied_BK & second.applied_BK).float().mean(dim=0)
    product = first.applied_BK.float().mean(dim=0) * second.applied_BK.float().mean(dim=0)
    assert (both - product).abs().max() < 0.015
    for k, operator in enumerate(pipeline.names):
        for key, values in first.parameters[operator].items():
            constant = values.float().std() == 0  # 3 is the only length of a line at this size
            assert constant or not torch.equal(values, second.parameters[operator][key]), (k, key)


def test_choice_restricts_the_coins_and_leaves_the_stream():
    pipeline = Pipeline(PRESETS["mast19"], SIZE)
    free = pipeline.draw(B, generator())
    chosen = torch.rand(B, len(pipeline.names), generator=generator(1)) < 0.3
    source = generator()
    bound = pipeline.draw(B, source, chosen)
    for one, other in zip(free, bound, strict=True):
        assert torch.equal(other.applied_BK, one.applied_BK & chosen)
        for name, drawn in one.parameters.items():
            assert all(torch.equal(drawn[key], other.parameters[name][key]) for key in drawn)
    after = generator()
    pipeline.draw(B, after)
    assert torch.equal(source.get_state(), after.get_state())


@pytest.mark.parametrize(("name", "compiled"), [("mast19", True), ("dino", True), ("mae", False)])
def test_replay_gives_the_same_bits(name, compiled, batch):
    pipeline = Pipeline(PRESETS[name], SIZE, compiled)
    records = pipeline.draw(B, generator(), None)
    before = batch.values_T.clone()
    views, again = pipeline.views(batch, records), pipeline.views(batch, records)
    for view, size in enumerate(pipeline.sizes):
        assert torch.equal(views.images[view], again.images[view])
        # views of one size may be drawn together, which moves rounding; a level is 4e-3
        alone = one_view(pipeline, PRESETS[name], batch, records[view], view)
        torch.testing.assert_close(alone, views.images[view], rtol=0, atol=5e-6)
        assert views.images[view].shape == (B, 3, size, size)
        assert 0 <= views.images[view].min() <= views.images[view].max() <= 1
    assert torch.equal(before, batch.values_T)
    applied = torch.stack([record.applied_BK for record in records])
    assert torch.equal(views.active_BK, applied.any(dim=0))
    assert views.names == pipeline.names
    half = pipeline.views(batch, records, pipeline.buffer(B, batch.device, torch.bfloat16))
    assert half.images[0].dtype == torch.bfloat16
    for rounded, image in zip(half.images, views.images, strict=True):
        assert torch.equal(rounded, image.bfloat16()), "operators compute in float32 either way"


@both_ways
def test_a_slice_of_the_record_draws_a_slice_of_the_batch(batch, compiled):
    """Two processes that each draw a half see what one would see; equalize and posterize may
    carry a rounding of 1e-7 over a level, so they are left out."""
    preset = PRESETS["mast19"]
    names = tuple(n for n in preset.operators if n not in ("equalize", "posterize"))
    pipeline = Pipeline(preset.only(names), SIZE, compiled)
    records = pipeline.draw(B, generator())
    whole = pipeline.views(batch, records)
    for some in (slice(0, 9), slice(9, B)):
        assert len(records[0][some]) == len(range(B)[some])
        part = pipeline.views(batch[some], tuple(record[some] for record in records))
        for view in range(len(records)):
            difference = (part.images[view] - whole.images[view][some]).abs()
            assert difference.flatten(1).quantile(0.999, dim=1).max() <= 5e-6


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_record_says_exactly_who_changed(operator, batch):
    visible = {"gaussian_blur": {"sigma": (7.0, 14.0)}}  # the default is faint at 32 pixels
    own = {name: fields for name, fields in visible.items() if name == operator}
    pipeline = Pipeline(Preset((operator,), (View(own),)), SIZE)
    k = pipeline.names.index(operator)
    chosen = torch.zeros(B, len(pipeline.names), dtype=torch.bool)
    chosen[::2, k] = True
    (record,) = pipeline.draw(B, generator(), chosen)
    (images,) = pipeline.views(batch, (record,)).images
    nothing = Record((), torch.zeros(B, 0, dtype=torch.bool), {})
    (identity,) = Pipeline(Preset((), (View(),)), SIZE).views(batch, (nothing,)).images
    applied = record.applied_BK[:, k]
    assert not applied[1::2].any()
    torch.testing.assert_close(images[~applied], identity[~applied], rtol=0, atol=1e-5)
    changed = (images - identity).flatten(1).abs().amax(dim=1) > 1e-4
    faint = {"random_resized_crop", "sharpness", "solarize", "cutout"}  # magnitudes near 0
    assert changed[applied].float().mean() > (0.5 if operator in faint else 0.999)


def test_a_view_shares_decisions_with_the_first(batch):
    names = PRESETS["mast5"].operators
    shares = ("color_jitter", "horizontal_flip")
    preset = Preset(names, (View(), View(), View(shares=shares)))
    query, independent, sharing = Pipeline(preset, SIZE).draw(B, generator())
    plain = Pipeline(replace(preset, views=(View(),) * 3), SIZE).draw(B, generator())[2]
    for name in names:
        same = torch.equal(sharing.applied(name), query.applied(name)) and all(
            torch.equal(drawn, query.parameters[name][key])
            for key, drawn in sharing.parameters[name].items()
        )
        assert same == (name in shares)
        if name not in shares:  # what is shared leaves the other draws as they were
            assert torch.equal(sharing.applied(name), plain.applied(name))
    assert not torch.equal(independent.applied("color_jitter"), query.applied("color_jitter"))
    assert preset.only(["color_jitter"]).views[2].shares == ("color_jitter",)
    with pytest.raises(UserError, match="only if both have one size"):
        Preset(names, (View(), View(size=16, shares=shares)))


@both_ways
def test_threads_and_parts_of_a_large_batch_are_invisible(batch, compiled, monkeypatch):
    pipeline = Pipeline(replace(PRESETS["mast15"], views=(View(),)), SIZE, compiled)
    records = pipeline.draw(B, generator())
    (whole,) = pipeline.views(batch, records).images
    most = "COMPILED_PART_VALUES" if compiled else "PART_VALUES"
    monkeypatch.setattr(f"mast.augment.pipeline.{most}", 5 * 3 * SIZE**2)
    torch.set_num_threads(3)
    try:
        (images,) = pipeline.views(batch, records).images
    finally:
        torch.set_num_threads(1)
    torch.testing.assert_close(images, whole, rtol=0, atol=0 if compiled else 5e-6)


@pytest.mark.parametrize(
    ("operators", "views", "message"),
    [
        (("gausian_blur",), (View(),), r"'gausian_blur'.*'gaussian_blur'"),
        (("rotate",), (View({"rotate": {"angles": 3}}),), r"field of rotate 'angles'.*'angle'"),
        (("rotate",), (View({"rotate": {"size": 3}}),), "field of rotate 'size'"),
        (("rotate",), (View({"invert": {"probability": 1.0}}),), r"'invert'.*rotate"),
        (("rotate",), (View(), View(size=4)), "size to be 8 pixels or more, got 4"),
        (("rotate",), (View(), View(shares=("invert",))), "unknown operator of these views 'inv"),
    ],
)
def test_errors_name_the_nearest_choice(operators, views, message):
    with pytest.raises(UserError, match=message):
        Pipeline(Preset(operators, views), SIZE)


def test_the_order_of_a_preset_does_not_change_the_order_of_action(batch):
    names = PRESETS["mast19"].operators
    forth = Pipeline(Preset(names, (View(),)), SIZE)
    back = Pipeline(Preset(tuple(reversed(names)), (View(),)), SIZE)
    (record,) = forth.draw(B, generator())
    mirrored = replace(record, names=back.names, applied_BK=record.applied_BK.flip(1))
    (expected,) = forth.views(batch, (record,)).images
    assert torch.equal(back.views(batch, (mirrored,)).images[0], expected)
