"""Views of images of other channels and depths than three of 8 bits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mast.augment import PRESETS, Canvases, Pipeline, center_views, operators_for
from mast.augment.presets import MAST5, Preset, View
from mast.core.errors import UserError
from mast.core.reading import MOST_CHANNELS, RGB, Layout

SIZE = 24
SHAPES = ((30, 41), (24, 24), (57, 33))


def packed(images: list[np.ndarray], layout: Layout) -> Canvases:
    """Images (C, H, W) in [0, 1] as canvases."""
    sheets = []
    for image_CHW in images:
        planes_PHW = layout.split(image_CHW)
        sheets.append(planes_PHW.reshape(-1, 3, *planes_PHW.shape[1:]).transpose(0, 2, 3, 1))
    values_T = torch.from_numpy(np.concatenate([each.ravel() for each in sheets]))
    sizes_B2 = torch.tensor([image_CHW.shape[1:] for image_CHW in images])
    return Canvases.packed(values_T, sizes_B2, layout=layout)


def noise(channels: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.uniform(0, 1, (channels, *shape)).astype(np.float32) for shape in SHAPES]


def views(canvases: Canvases, preset: str = "mast19", compiled: bool = True) -> tuple[Tensor, ...]:
    pipeline = Pipeline(PRESETS[preset].of_channels(canvases.layout.channels), SIZE, compiled)
    records = pipeline.draw(len(canvases), torch.Generator().manual_seed(1))
    return pipeline.views(canvases, records).images


@settings(max_examples=30)
@given(st.integers(1, MOST_CHANNELS), st.booleans(), st.integers(0, 2**31))
def test_what_is_split_is_joined(channels: int, deep: bool, seed: int) -> None:
    layout = Layout(channels, deep)
    image_CHW = np.random.default_rng(seed).uniform(0, 1, (channels, 3, 4)).astype(np.float32)
    planes_PHW = layout.split(image_CHW)
    assert planes_PHW.shape[0] == 3 * layout.sheets
    joined = layout.joined(torch.from_numpy(planes_PHW[None]).float() / 255)[0]
    half = 0.5 / (65535 if deep else 255)
    np.testing.assert_allclose(joined, image_CHW, rtol=0, atol=half + 1e-6)


@pytest.mark.parametrize("compiled", [True, False])
def test_16_bits_of_8_bit_values_give_the_views_of_8_bits(compiled: bool) -> None:
    images = [np.rint(image_CHW * 255) / 255 for image_CHW in noise(3)]
    shallow, deep = packed(images, RGB), packed(images, Layout(3, deep=True))
    for ours, expected in zip(
        views(deep, "mast15", compiled), views(shallow, "mast15", compiled), strict=True
    ):
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-4)
    for size in (SIZE, 13):
        exact, seen = center_views(shallow, size), center_views(deep, size)
        torch.testing.assert_close(seen, exact, rtol=0, atol=1 / 255)  # which rounds twice


@pytest.mark.parametrize("deep", [True, False])
def test_each_channel_is_drawn_as_if_it_were_alone(deep: bool) -> None:
    images = noise(7)
    whole = views(packed(images, Layout(7, deep)), "mae")
    for channel in (0, 2, 3, 6):
        alone = packed([image_CHW[[channel]] for image_CHW in images], Layout(1, deep))
        torch.testing.assert_close(whole[0][:, [channel]], views(alone, "mae")[0])


@pytest.mark.parametrize("layout", [Layout(1), Layout(2, True), Layout(13, True)])
def test_all_operators_act_on_any_channels(layout: Layout) -> None:
    images = noise(layout.channels)
    drawn = views(packed(images, layout))
    for view_BCHW in drawn:
        assert view_BCHW.shape == (len(SHAPES), layout.channels, SIZE, SIZE)
        assert view_BCHW.isfinite().all()
        assert 0 <= view_BCHW.min() <= view_BCHW.max() <= 1
    other = views(packed(images, layout), compiled=False)
    for one, two in zip(drawn, other, strict=True):
        # posterize and equalize jump at thresholds, to either side of which a value may round
        assert ((one - two).abs() < 1e-3).float().mean() > 0.98


def test_operators_of_colors_give_way() -> None:
    preset = PRESETS["vicreg"].of_channels(5)
    assert preset.channels == 5
    assert preset.operators == (
        "random_resized_crop", "horizontal_flip", "band_jitter", "gaussian_blur", "solarize",
    )  # fmt: skip
    assert set(PRESETS["mast19"].of_channels(4).operators) == set(operators_for(4))
    assert PRESETS["mast19"].of_channels(3) == PRESETS["mast19"]
    strong = PRESETS["simclr"].of_channels(2).views[0].overrides["band_jitter"]
    assert strong == {"brightness": 0.8, "contrast": 0.8}
    sharing = Preset(MAST5, (View(), View(shares=("color_jitter", "grayscale"))))
    assert sharing.of_channels(2).views[1].shares == ("band_jitter",)


def test_views_of_other_images_are_refused() -> None:
    pipeline, canvases = Pipeline(PRESETS["mast5"], SIZE), packed(noise(5), Layout(5))
    records = pipeline.draw(3, torch.Generator())
    with pytest.raises(UserError, match="3 channels, got images of 5"):
        pipeline.views(canvases, records)
