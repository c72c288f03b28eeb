"""Geometry: aspect, resampling against torchvision's antialiased result, fill.

Legend: B samples, C channels, H and W pixels.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as reference

from mast.augment import Pipeline, Preset, Record, View, center_views
from mast.augment.operators.geometry import crop_boxes
from mast.core.canvases import Canvases
from mast.data.canvas import canvas_size
from mast.data.decode import canvas_shape


def canvas_of(images_BCHW: torch.Tensor) -> torch.Tensor:
    """uint8 canvas_BHWC of float images."""
    return reference.to_dtype(images_BCHW, torch.uint8, scale=True).permute(0, 2, 3, 1).contiguous()


def record_of(n: int, **operators: dict[str, torch.Tensor]) -> Record:
    """A record in which every named operator is applied to every sample."""
    return Record(
        tuple(operators), torch.ones(n, len(operators), dtype=torch.bool), dict(operators)
    )


def view(canvas, aspect, size, **operators):
    pipeline = Pipeline(Preset(tuple(operators), (View(),)), size)
    return pipeline.views(
        Canvases.of(canvas, aspect), (record_of(len(canvas), **operators),)
    ).images[0]


def crop_parameters(area, ratio, left, top):
    n = len(area)
    many = {"area": torch.tensor(area), "ratio": torch.tensor(ratio)}
    single = {"left": torch.tensor(left), "top": torch.tensor(top)}
    single |= {"narrowest": torch.full((n,), 3 / 4), "widest": torch.full((n,), 4 / 3)}
    return {key: values[:, None].expand(n, 10) for key, values in many.items()} | single


# tall, wide, of one pixel, and larger than a view in both
SHAPES = ((660, 300), (1032, 6), (24, 1), (480, 640), (300, 201), (50, 300), (33, 31), (1, 1))


@pytest.mark.parametrize(("size", "fraction"), [(64, 0.875), (16, 0.3)])
def test_center_views_are_torchvisions_bit_for_bit(size, fraction):
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (*shape, 3), np.uint8) for shape in SHAPES]
    canvases = Canvases.cat([Canvases.of(torch.from_numpy(image)[None]) for image in images])
    canvases = replace(canvases, aspect_B=torch.tensor([w / h for h, w in SHAPES]))
    prepare = v2.Compose(
        [
            v2.Resize(math.floor(size / fraction)),
            v2.CenterCrop(size),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    expected = torch.stack([prepare(Image.fromarray(image)) for image in images])
    assert torch.equal(center_views(canvases, size, fraction), expected)
    torch.set_num_threads(3)
    try:
        parted = center_views(canvases, size, fraction)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(parted, expected)


def test_a_view_of_a_shrunk_canvas_is_cut_where_its_original_would_be():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (640, 1007, 3), np.uint8))
    smooth = image.resize((20, 20)).resize(image.size, Image.Resampling.BICUBIC)
    shape = canvas_shape(*smooth.size, canvas_size(64))
    shrunk = torch.from_numpy(np.asarray(smooth.resize(shape, Image.Resampling.LANCZOS)).copy())
    canvases = Canvases.of(shrunk[None], torch.tensor([1007 / 640]))
    expected = v2.Compose([v2.Resize(64), v2.CenterCrop(64), v2.PILToTensor()])(smooth) / 255
    assert (center_views(canvases, 64)[0] - expected).abs().max() < 0.012


def test_boxes_keep_their_area_and_ratio_in_the_original_image():
    n, generator = 4096, torch.Generator().manual_seed(0)
    area = torch.rand(n, 10, generator=generator) * 0.92 + 0.08
    ratio = torch.exp((torch.rand(n, 10, generator=generator) * 2 - 1) * torch.tensor(4 / 3).log())
    place = {"left": torch.rand(n, generator=generator), "top": torch.rand(n, generator=generator)}
    place |= {"narrowest": torch.full((n,), 3 / 4), "widest": torch.full((n,), 4 / 3)}
    aspect = torch.exp(torch.randn(n, generator=generator) * 0.4)
    boxes = crop_boxes({"area": area, "ratio": ratio, **place}, aspect)
    left, top, width, height = boxes.unbind(1)
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (left + width <= 1 + 1e-6).all()
    assert (top + height <= 1 + 1e-6).all()
    own_ratio = width / height * aspect
    assert own_ratio.min() >= 3 / 4 - 1e-4
    assert own_ratio.max() <= 4 / 3 + 1e-4
    for i in range(60):  # torchvision's loop, sample by sample
        for t in range(10):
            wide = (area[i, t] * ratio[i, t] / aspect[i]).sqrt()
            high = (area[i, t] / ratio[i, t] * aspect[i]).sqrt()
            if wide <= 1 and high <= 1:
                torch.testing.assert_close(width[i], wide)
                torch.testing.assert_close(height[i], high)
                break
        else:
            assert max(width[i], height[i]) == pytest.approx(1.0)


@pytest.mark.parametrize(("cell", "angle"), [(1, -13.0), (2, 30.0)])
def test_turning_a_fine_pattern_does_not_alias(cell, angle):
    line = torch.arange(256) // cell % 2
    pattern = (line ^ line[:, None]).float().expand(1, 3, -1, -1)  # a checkerboard
    views = view(canvas_of(pattern), torch.ones(1), 64, rotate={"angle": torch.tensor([angle])})[0]
    antialiased = reference.resize(pattern[0], [64, 64], antialias=True)
    expected = reference.rotate(antialiased, angle, InterpolationMode.BILINEAR, fill=0.5)
    middle = (slice(None), slice(12, 52), slice(12, 52))
    assert views[middle].std() <= expected[middle].std() + 0.02
    assert (views[middle] - expected[middle]).abs().max() < 0.05


def test_turned_crops_are_near_the_antialiased_ones():
    coarse = torch.rand(3, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    images = reference.resize(coarse, [256, 256])
    canvas, angle = canvas_of(images), torch.tensor([25.0, -18.0, 7.0])
    sides, lefts, tops = (180, 240, 128), (20, 8, 77), (38, 3, 51)
    crop = crop_parameters(
        [(side / 256) ** 2 for side in sides],
        [1.0] * 3,
        [left / (256 - side) for left, side in zip(lefts, sides, strict=True)],
        [top / (256 - side) for top, side in zip(tops, sides, strict=True)],
    )
    views = view(canvas, torch.ones(3), 64, random_resized_crop=crop, rotate={"angle": angle})
    for i, (side, left, top) in enumerate(zip(sides, lefts, tops, strict=True)):
        image = canvas[i].permute(2, 0, 1).float() / 255
        upright = reference.resized_crop(image, top, left, side, side, [64, 64], antialias=True)
        expected = reference.rotate(upright, angle[i].item(), InterpolationMode.BILINEAR)
        difference = (views[i] - expected)[:, 16:48, 16:48].abs()
        assert difference.mean() < 0.01
        assert difference.max() < 0.06


@pytest.mark.parametrize("bicubic", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("pixels", "size"), [(40, 64), (256, 48), (2, 8)])
def test_crops_are_those_of_torchvision(pixels, size, compiled, bicubic):
    generator, n = torch.Generator().manual_seed(pixels), 6
    canvas = torch.randint(0, 256, (n, pixels, pixels, 3), dtype=torch.uint8, generator=generator)
    width, height = torch.randint(max(pixels // 3, 1), pixels, (2, n), generator=generator)
    left, top = (
        (torch.rand(n, generator=generator) * (pixels - side)).long() for side in (width, height)
    )
    crop = crop_parameters(
        (width * height / pixels**2).tolist(),
        (width / height).tolist(),
        (left / (pixels - width)).tolist(),
        (top / (pixels - height)).tolist(),
    )
    own = View({"random_resized_crop": {"bicubic": bicubic}})
    pipeline = Pipeline(Preset(("random_resized_crop",), (own,)), size, compiled)
    records = (record_of(n, random_resized_crop=crop),)
    views = pipeline.views(Canvases.of(canvas, torch.ones(n)), records).images[0]
    mode = InterpolationMode.BICUBIC if bicubic else InterpolationMode.BILINEAR
    for i, image in enumerate(canvas.permute(0, 3, 1, 2).float() / 255):
        box = (int(side[i]) for side in (top, left, height, width))
        expected = reference.resized_crop(image, *box, [size, size], mode, antialias=True)
        torch.testing.assert_close(views[i], expected.clamp(0, 1), rtol=0, atol=2e-5)


@pytest.mark.parametrize("turned", [False, True])
def test_outside_takes_the_mean_color(turned):
    images = torch.rand(2, 3, 72, 72, generator=torch.Generator().manual_seed(0))
    images[:, 0] *= 0.3
    canvas = canvas_of(images)
    operators = {"translate_x": {"shift": torch.tensor([0.25, -0.25])}}
    if turned:
        operators["rotate"] = {"angle": torch.tensor([1e-4, 1e-4])}
    views = view(canvas, torch.ones(2), 64, **operators)
    mean = (canvas.float() / 255).mean(dim=(1, 2))
    blank = mean[:, :, None, None].expand(-1, -1, 64, 16)
    torch.testing.assert_close(views[:1, :, :, :16], blank[:1], rtol=0, atol=1e-5)
    torch.testing.assert_close(views[1:, :, :, 48:], blank[1:], rtol=0, atol=1e-5)
    whole = center_views(Canvases.of(canvas), 64)
    near = 0.12 if turned else 4.1e-3  # two filters against one; the latter rounds to 8 bits twice
    assert (views[0, :, :, 17:] - whole[0, :, :, 1:48]).abs().max() < near


def test_order_is_flip_then_shear_then_translate_then_rotate():
    coarse = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    image = reference.resize(coarse, [64, 64])
    image = canvas_of(image).permute(0, 3, 1, 2).float() / 255
    operators = {
        "horizontal_flip": {},
        "shear_x": {"shear": torch.tensor([0.2])},
        "translate_x": {"shift": torch.tensor([0.125])},
        "rotate": {"angle": torch.tensor([20.0])},
    }
    views = view(canvas_of(image), torch.ones(1), 64, **operators)
    bilinear = {"interpolation": InterpolationMode.BILINEAR}
    shear = [torch.rad2deg(torch.atan(torch.tensor(0.2))).item(), 0.0]
    step = reference.horizontal_flip(image)
    step = reference.affine(step, 0.0, [0, 0], 1.0, shear, center=[0, 0], **bilinear)
    step = reference.affine(step, 0.0, [8, 0], 1.0, [0.0, 0.0], **bilinear)
    step = reference.rotate(step, 20.0, **bilinear)
    assert (views - step)[..., 20:44, 20:44].abs().max() < 0.02
