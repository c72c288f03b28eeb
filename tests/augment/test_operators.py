"""Every operator is one row: fixed parameters and a reference, for PyTorch, Numba and Triton.

Legend: B samples, C channels, H and W pixels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from unittest.mock import patch

import kornia
import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as reference

from mast.augment import OPERATORS, Operator, Record, operators_for
from mast.augment.operators.color import ORDERS
from mast.augment.operators.filters import motion_kernels
from mast.augment.operators.geometry import GeometricOperator
from mast.augment.operators.noise import normal_field
from mast.augment.warp import Warp
from mast.core.canvases import Canvases
from mast.core.errors import UserError

SIDE = 48
COMPILED = 1e-4  # a fortieth of an 8-bit level; compiled Gaussians are cut at four sigmas
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # where Triton's kernels run
BILINEAR = InterpolationMode.BILINEAR


@dataclass(frozen=True)
class Row:
    """An operator, parameters of four samples, and what one sample must become."""

    name: str
    parameters: dict[str, list]
    expected: Callable[..., Tensor]
    tolerance: float
    border: int = 0  # pixels at the border that the reference fills in its own way
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def operator(self) -> Operator:
        return OPERATORS[self.name](SIDE, **self.options)


def crop(image, area, ratio, left, top, **fallback):
    width, height = (round(SIDE * (area[0] * of) ** 0.5) for of in (ratio[0], 1 / ratio[0]))
    x, y = round(left * (SIDE - width)), round(top * (SIDE - height))
    return reference.resized_crop(image, y, x, height, width, [SIDE, SIDE], antialias=True)


def whole_box(x, y, width, height):
    """Parameters of `random_resized_crop` for a box of whole pixels."""
    return {
        "area": [width * height / SIDE**2] * 10,
        "ratio": [width / height] * 10,
        "left": x / max(SIDE - width, 1),
        "top": y / max(SIDE - height, 1),
        "narrowest": 3 / 4,
        "widest": 4 / 3,
    }


def boxes(*rows):
    drawn = [whole_box(*row) for row in rows]
    return {key: [box[key] for box in drawn] for key in drawn[0]}


def affine(image, shear=(0.0, 0.0), translate=(0, 0), center=None):
    shear = [torch.rad2deg(torch.atan(torch.tensor(value))).item() for value in shear]
    fill = image.mean(dim=(1, 2)).tolist()
    return reference.affine(
        image, 0.0, list(translate), 1.0, shear, interpolation=BILINEAR, fill=fill, center=center
    )


def rotate(image, angle):
    return reference.rotate(image, angle, BILINEAR, fill=image.mean(dim=(1, 2)).tolist())


def jitter(image, *, brightness, contrast, saturation, hue, order):
    steps = (
        lambda x: reference.adjust_brightness(x, brightness),
        lambda x: reference.adjust_contrast(x, contrast),
        lambda x: reference.adjust_saturation(x, saturation),
        lambda x: reference.adjust_hue(x, hue),
    )
    for step in ORDERS[order]:
        image = steps[step](image)
    return image


def in_levels(function):
    """A reference on uint8, as its values in [0, 1]."""

    def applied(image, **parameters):
        levels = reference.to_dtype(image, torch.uint8, scale=True)
        return function(levels, **parameters).float() / 255

    return applied


def noise(image, std, seed):
    field = normal_field(torch.tensor([seed]), image.numel()).view(image.shape)
    return (image + std * field).clamp(0, 1)


def sobel(image, blend):
    gray = reference.rgb_to_grayscale(image)[None]
    edges = kornia.filters.sobel(gray, normalized=False)[0].clamp(0, 1)
    return (1 - blend) * image + blend * edges


def cutout(image, side, x, y):
    image, mean = image.clone(), image.mean(dim=(1, 2))[:, None, None]
    low_x, high_x = round((x - side / 2) * SIDE), round((x + side / 2) * SIDE)
    low_y, high_y = round((y - side / 2) * SIDE), round((y + side / 2) * SIDE)
    image[:, max(low_y, 0) : high_y, max(low_x, 0) : high_x] = mean
    return image


def motion_blur(image, taps, angle):
    direction = torch.zeros(1)
    kernel = kornia.filters.get_motion_kernel2d(taps, torch.tensor([angle]), direction)
    return kornia.filters.filter2d(image[None], kernel, "reflect")[0]


def bands(image, brightness, contrast, gain):
    image = (image * brightness * torch.tensor(gain[:3])[:, None, None]).clamp(0, 1)
    mean = image.mean(dim=(1, 2), keepdim=True)
    return (contrast * image + (1 - contrast) * mean).clamp(0, 1)


SHEARS, SHIFTS = {"shear": [-0.3, -0.1, 0.1, 0.3]}, {"shift": [-0.25, -0.125, 0.125, 0.4375]}
ROWS = [
    Row(
        "random_resized_crop",
        boxes((3, 7, 24, 30), (0, 0, 48, 48), (10, 20, 37, 28), (20, 1, 12, 10)),
        crop,
        1e-4,
    ),
    Row("horizontal_flip", {}, reference.horizontal_flip, 1e-5),
    Row(
        "color_jitter",
        {
            "brightness": [0.6, 1.4, 1.1, 1.3],
            "contrast": [1.4, 0.7, 0.6, 1.2],
            "saturation": [0.8, 1.2, 1.1, 0.9],
            "hue": [0.1, -0.1, 0.03, -0.07],
            "order": [0, 7, 16, 23],
        },
        jitter,
        1e-3,
    ),
    Row(
        "band_jitter",
        {
            "brightness": [1.0, 0.6, 1.4, 1.0],
            "contrast": [1.0, 1.3, 0.7, 1.0],
            "gain": [[first, 1.0, 1.0, *[2.0] * 13] for first in (1.0, 0.8, 1.2, 0.9)],
        },
        bands,
        1e-5,
    ),
    Row("grayscale", {}, lambda x: reference.rgb_to_grayscale(x, 3), 1e-6),
    Row(
        "gaussian_blur",
        {"sigma": [0.05, 0.4, 1.0, 2.0]},
        lambda x, sigma: reference.gaussian_blur(x, [5, 5], [sigma, sigma]),
        1e-5,
    ),
    Row(
        "gaussian_blur",
        {"sigma": [0.5, 1.0, 3.0, 5.0]},
        lambda x, sigma: reference.gaussian_blur(x, [19, 19], [sigma, sigma]),
        1e-5,
        options={"extent": 0.4},
    ),
    Row("shear_x", SHEARS, lambda x, shear: affine(x, (shear, 0.0), center=[0, 0]), 1e-4, border=1),
    Row("shear_y", SHEARS, lambda x, shear: affine(x, (0.0, shear), center=[0, 0]), 1e-4, border=1),
    Row("translate_x", SHIFTS, lambda x, shift: affine(x, translate=(shift * SIDE, 0)), 1e-4),
    Row("translate_y", SHIFTS, lambda x, shift: affine(x, translate=(0, shift * SIDE)), 1e-4),
    Row("rotate", {"angle": [-30.0, -7.5, 11.0, 30.0]}, rotate, 1e-4, border=1),
    Row("invert", {}, reference.invert, 1e-6),
    Row(
        "sharpness",
        {"factor": [0.1, 0.7, 1.3, 1.9]},
        lambda x, factor: reference.adjust_sharpness(x, sharpness_factor=factor),
        1e-5,
    ),
    Row("gaussian_noise", {"std": [0.0, 0.02, 0.05, 0.1], "seed": [1, 2, 3, 4]}, noise, 1e-6),
    Row("sobel", {"blend": [0.1, 0.4, 0.7, 1.0]}, sobel, 1e-5),
    Row(
        "cutout",
        {
            "side": [0.0, 0.25, 0.5, 0.125],
            "x": [0.5, 0.5, 0.0, 0.8125],
            "y": [0.5, 0.25, 0.25, 1.0],
        },
        cutout,
        1e-6,
    ),
    Row("solarize", {"threshold": [0.1, 0.4, 0.6, 0.9]}, reference.solarize, 1e-6),
    Row("equalize", {}, in_levels(reference.equalize), 1e-6),
    Row("posterize", {"bits": [4, 5, 7, 8]}, in_levels(reference.posterize), 1e-6),
    Row("motion_blur", {"taps": [3] * 4, "angle": [0.0, 100.0, 215.0, 359.0]}, motion_blur, 1e-5),
]
rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@pytest.fixture(scope="module")
def images() -> Tensor:
    """Four images_BCHW with smooth parts, edges, flat parts and pure colors."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(4, 3, 6, 6, generator=generator)
    images = torch.nn.functional.interpolate(coarse, SIDE, mode="bilinear")
    images = (images + 0.2 * torch.randn(images.shape, generator=generator)).clamp(0, 1)
    images[:, :, 30:40, 5:20] = coarse[:, :, :1, :1]
    images[1, :, 10:20, 30:40] = torch.tensor([1.0, 0.0, 0.0])[:, None, None]
    return images.mul(255).round() / 255


def tensors(row: Row) -> dict[str, Tensor]:
    return {key: torch.tensor(values) for key, values in row.parameters.items()}


def test_one_row_for_every_operator():
    assert {row.name for row in ROWS} == {*OPERATORS}
    assert all(operator.name == name for name, operator in OPERATORS.items())


def applied(
    kernels: str,
    operator: Operator,
    images: Tensor,
    parameters: dict[str, Tensor],
    applied_B: Tensor,
) -> Tensor:
    """Images of which some drew an operator, by one of three kernels."""
    if kernels == "PyTorch":
        views = images.clone()
        own = {key: values[applied_B] for key, values in parameters.items()}
        views[applied_B] = operator.apply(images[applied_B], own)
        return views
    if kernels == "Numba":
        views = images.clone()
        step = operator.compiled(applied_B, parameters)
        for some in (slice(0, 2), slice(2, 4)):
            step(views[some].numpy(), some)
        return views
    chain = pytest.importorskip("mast.augment.fused.chain")
    record = Record((operator.name,), applied_B[:, None], {operator.name: parameters})
    every_B = torch.ones(4, dtype=torch.bool)
    whole = Warp(torch.eye(3).repeat(4, 1, 1), torch.ones(4, 2), every_B, ~every_B)
    canvas = images.mul(255).round().to(DEVICE, torch.uint8).permute(0, 2, 3, 1).contiguous()
    views = torch.full((4, 3, SIDE, SIDE), torch.nan, device=DEVICE)
    with patch.object(chain, "BLOCK", 1024):  # an interpreter takes its time for a program
        chain.draw_views([operator], Canvases.of(canvas), whole, record, views)
    return views.cpu()


@pytest.mark.parametrize(
    ("kernels", "row"),
    [
        pytest.param(kernels, row, marks=marks, id=f"{kernels}-{row.name}")
        for kernels, marks in (("PyTorch", ()), ("Numba", ()), ("Triton", pytest.mark.slow))
        for row in ROWS
        if kernels == "PyTorch" or not issubclass(OPERATORS[row.name], GeometricOperator)
        if kernels != "Triton" or row.name in operators_for(3)
    ],
)
def test_equals_the_reference(kernels, row, images):
    applied_B = torch.tensor([True, kernels == "PyTorch", True, True])
    views = applied(kernels, row.operator, images, tensors(row), applied_B)
    tolerance = row.tolerance if kernels == "PyTorch" else max(row.tolerance, COMPILED)
    for i, image in enumerate(images):
        if not applied_B[i]:  # it keeps its pixels
            torch.testing.assert_close(views[i], image, rtol=0, atol=1e-6)
            continue
        own = {key: values[i] for key, values in row.parameters.items()}
        expected = row.expected(image, **own)
        difference = (views[i] - expected).abs().amax(dim=0)
        if row.border:  # the reference fades to its fill around the border of the image
            inner = well_inside(row, own)
            assert inner.float().mean() > 0.5
            difference = difference[inner]
        assert difference.max() <= tolerance


def well_inside(row: Row, own: dict[str, float]) -> Tensor:
    """Pixels whose bilinear neighbours all lie in the image."""
    operator = row.operator
    parameters = {key: torch.tensor([value]) for key, value in own.items()}
    moved = operator.matrices(parameters, torch.ones(1))
    grid_V = (torch.arange(SIDE) + 0.5) / SIDE
    y, x = torch.meshgrid(grid_V, grid_V, indexing="ij")
    at = moved[0] @ torch.stack([x, y, torch.ones_like(x)]).flatten(1)
    margin = row.border / SIDE
    return ((at[:2] > margin) & (at[:2] < 1 - margin)).all(dim=0).view(SIDE, SIDE)


@rows
def test_conformance(row, images):
    """Samples are independent, finite, in range and reproducible; inputs stay as they are."""
    operator, parameters, before = row.operator, tensors(row), images.clone()
    views = operator.apply(images, parameters)
    assert torch.equal(images, before)
    assert views.data_ptr() != images.data_ptr()
    assert (views.shape, views.dtype) == (images.shape, torch.float32)
    for i in range(len(images)):
        own = {key: values[i : i + 1] for key, values in parameters.items()}
        alone = operator.apply(images[i : i + 1], own)
        torch.testing.assert_close(alone[0], views[i], rtol=0, atol=2e-6)
    drawn, again = (operator.sample(64, torch.Generator().manual_seed(3)) for _ in range(2))
    assert drawn.keys() == again.keys() == parameters.keys()
    for key, values in drawn.items():
        assert len(values) == 64
        assert torch.equal(values, again[key])
    for views_BCHW in (views, operator.apply(torch.rand(64, 3, SIDE, SIDE), drawn)):
        assert views_BCHW.isfinite().all()
        assert 0 <= views_BCHW.min() <= views_BCHW.max() <= 1


def test_magnitudes_scale_with_the_side():
    assert [OPERATORS["gaussian_blur"](side).taps for side in (32, 64, 224)] == [3, 7, 23]
    assert OPERATORS["motion_blur"](224).taps_range == (3, 7)
    assert OPERATORS["motion_blur"](56).taps_range == (1.5, 2.5)
    lengths = OPERATORS["motion_blur"](56).sample(999, torch.Generator())["taps"]
    assert lengths.unique().tolist() == [1.5, 2.0, 2.5]  # of 3, 5 and 7 pixels of a view of 224
    assert OPERATORS["gaussian_blur"](56).magnitudes()["sigma"] == (0.025, 0.5)
    areas = [OPERATORS["random_resized_crop"](side).range_of_area for side in (96, 97)]
    assert areas == [(0.2, 1.0), (0.08, 1.0)]


def test_motion_lines_in_a_larger_window():
    images = torch.rand(24, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    angle = torch.linspace(1.0, 359.0, 24)
    parameters = {"taps": torch.full((24,), 7), "angle": angle}
    views = OPERATORS["motion_blur"](224).apply(images, parameters)
    for i in range(24):
        expected = motion_blur(images[i], 7, angle[i].item())
        torch.testing.assert_close(views[i], expected, rtol=0, atol=1e-5)


def test_a_line_covers_a_part_of_the_outermost_pixels():
    """A line of 2.5 pixels: a whole one, and three quarters of one on either side."""
    kernel = motion_kernels(torch.tensor([2.5, 3.0]), torch.tensor([0.0, 90.0]), 5)
    expected = torch.zeros(2, 5, 5)
    expected[0, 2, 1:4] = torch.tensor([0.75, 1.0, 0.75]) / 2.5
    expected[1, 1:4, 2] = 1 / 3
    torch.testing.assert_close(kernel, expected)


def test_what_is_listed_is_what_is_drawn():
    """`magnitudes` bounds what `sample` draws, wherever a parameter bears its name."""
    compared = 0
    for build, side in product(OPERATORS.values(), (32, 224)):
        operator = build(side)
        drawn = operator.sample(4096, torch.Generator().manual_seed(0))
        for name, bounds in operator.magnitudes().items():
            if name in drawn and isinstance(bounds, tuple):
                assert bounds[0] <= drawn[name].min() + 1e-6
                assert drawn[name].max() <= bounds[1] + 1e-6
                reach = (drawn[name].max() - drawn[name].min()).item()
                assert reach > 0.95 * (bounds[1] - bounds[0])
                for magnitude in (0.0, 0.5, 1.0):
                    fixed = operator.at_magnitude(magnitude, drawn)[name]
                    assert bounds[0] - 1e-6 <= fixed.min() <= fixed.max() <= bounds[1] + 1e-6
                compared += 1
    assert compared >= 14


def test_noise_is_normal_and_independent():
    field = normal_field(torch.tensor([5, 6, 2**31 - 1]), 65_536)
    assert field.mean(dim=1).abs().max() < 0.02
    assert (field.std(dim=1) - 1).abs().max() < 0.02
    assert (field.pow(4).mean(dim=1) - 3).abs().max() < 0.15
    assert (torch.corrcoef(field) - torch.eye(3)).abs().max() < 0.02
    for lag in (1, 2, 64, 32_768):  # cosine and sine halves of a pair are 32,768 apart
        product = (field * field.roll(lag, dims=1)).mean(dim=1)
        assert product.abs().max() < 0.02
    assert torch.equal(normal_field(torch.tensor([5]), 999), normal_field(torch.tensor([5]), 999))
    assert normal_field(torch.tensor([0]), 7).shape == (1, 7)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sobel", {"blend": (0.0, 5.0)}),
        ("posterize", {"bits": (8, 4)}),
        ("color_jitter", {"hue": 36.0}),
        ("rotate", {"angle": (0.0, float("nan"))}),
        ("invert", {"probability": 1.5}),
    ],
)
def test_magnitudes_that_cannot_be_are_refused(name, options):
    with pytest.raises(UserError, match=f"{name}: expected {next(iter(options))} from"):
        OPERATORS[name](SIDE, **options)
