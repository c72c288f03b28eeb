"""How two views differ in what was drawn for them, by hand for every kind of operator.

Shapes: B samples, T numbers of an operator.
"""

import math

import pytest
import torch
from torch import Tensor

from mast.augment import (
    OPERATORS,
    PRESETS,
    PROPERTIES,
    Pipeline,
    Record,
    Views,
    difference,
    numbers,
)
from mast.augment.operators.geometry import crop_boxes

B = 64
PIPELINE = Pipeline(PRESETS["mast19"], 32)


def drawn(aspect_B: Tensor | None = None) -> Views:
    """Two views of all operators, without pixels."""
    records = PIPELINE.draw(B, torch.Generator().manual_seed(0))
    blank = torch.empty(B, 3, 0, 0)
    return Views((blank, blank), records, aspect_B=aspect_B)


def pair(name: str, first: dict[str, float] | None, second: dict[str, float] | None) -> Tensor:
    """The difference of one pair of views with these parameters, or none."""
    records = []
    for own in (first, second):
        parameters = {key: torch.tensor([value]) for key, value in (own or {}).items()}
        other = {key: torch.tensor([0.5]) for key in (first or second or {})}
        applied_11 = torch.tensor([[own is not None]])
        records.append(Record((name,), applied_11, {name: parameters or other}))
    blank = torch.empty(1, 3, 0, 0)
    return difference(Views((blank, blank), tuple(records)), name).squeeze(0)


JITTER = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}
HAND = {
    "grayscale": ({}, None, [1.0, 1.0]),
    "invert": (None, {}, [-1.0, 1.0]),
    "equalize": ({}, {}, [0.0, 0.0]),
    "horizontal_flip": (None, {}, [1.0]),
    "gaussian_blur": ({"sigma": 0.3}, None, [0.3]),
    "gaussian_noise": ({"std": 0.02}, {"std": 0.05}, [-0.03]),
    "sharpness": ({"factor": 1.5}, None, [0.5]),
    "sobel": ({"blend": 0.7}, {"blend": 0.2}, [0.5]),
    "solarize": ({"threshold": 0.2}, None, [0.8]),
    "posterize": ({"bits": 5.0}, {"bits": 7.0}, [2.0]),
    "rotate": ({"angle": 10.0}, {"angle": -20.0}, [0.5, 3**0.5 / 2 - 1]),
    "shear_x": ({"shear": 0.1}, None, [0.1]),
    "shear_y": (None, {"shear": 0.1}, [-0.1]),
    "translate_x": ({"shift": 0.1}, {"shift": 0.4}, [-0.3]),
    "translate_y": ({"shift": 0.1}, None, [0.1]),
    "cutout": ({"side": 0.5, "x": 0.7, "y": 0.5}, None, [0.5, 0.1, 0.0]),
    # A line turned by half a circle is the same line.
    "motion_blur": ({"taps": 3.0, "angle": 30.0}, {"taps": 3.0, "angle": 210.0}, [0.0] * 3),
    # A quarter of a turn apart: sine 1, cosine 0.
    "color_jitter": (
        JITTER | {"brightness": 1.3, "hue": 0.125},
        JITTER | {"saturation": 0.9, "hue": -0.125},
        [0.3, 0.0, 0.1, 1.0, -1.0],
    ),
}


@pytest.mark.parametrize("name", HAND)
def test_by_hand(name: str) -> None:
    first, second, expected = HAND[name]
    torch.testing.assert_close(pair(name, first, second), torch.tensor(expected))


def test_a_crop_differs_as_the_views_show() -> None:
    """The box that the pipeline cut, of images that are not square; x mirrored with the views."""
    aspect_B = torch.linspace(0.5, 2.0, B)
    views = drawn(aspect_B)
    found_BT = difference(views, "random_resized_crop")
    first_B4, second_B4 = (
        crop_boxes(record.parameters["random_resized_crop"], aspect_B) for record in views.records
    )
    center_B2 = (first_B4[:, :2] + first_B4[:, 2:] / 2) - (second_B4[:, :2] + second_B4[:, 2:] / 2)
    one_B, other_B = (record.applied("horizontal_flip") for record in views.records)
    assert torch.equal(found_BT[:, 0].isnan(), one_B ^ other_B)
    for alike_B, sign in ((one_B & other_B, -1), (~one_B & ~other_B, 1)):
        torch.testing.assert_close(found_BT[alike_B, 0], sign * center_B2[alike_B, 0])
    torch.testing.assert_close(found_BT[:, 1], center_B2[:, 1])
    ratio_B = (first_B4[:, 2] * first_B4[:, 3]) / (second_B4[:, 2] * second_B4[:, 3])
    torch.testing.assert_close(found_BT[:, 2], ratio_B.log() / 2)


def test_a_crop_that_was_not_drawn_is_the_centre() -> None:
    whole = {"area": torch.ones(1, 10), "ratio": torch.ones(1, 10)}
    numbers = {"left": 0.3, "top": 0.9, "narrowest": 3 / 4, "widest": 4 / 3}
    place = {key: torch.tensor([value]) for key, value in numbers.items()}
    effect_1T = OPERATORS["random_resized_crop"].effect(whole | place, torch.ones(1))
    torch.testing.assert_close(effect_1T, torch.zeros(1, 3))
    quarter = whole | {"area": torch.full((1, 10), 0.25)} | place
    effect_1T = OPERATORS["random_resized_crop"].effect(quarter, torch.ones(1))
    torch.testing.assert_close(effect_1T, torch.tensor([[0.15 - 0.25, 0.45 - 0.25, math.log(0.5)]]))


@pytest.mark.parametrize("name", PIPELINE.names)
def test_every_operator_has_a_difference(name: str) -> None:
    views = drawn()
    difference_BT = difference(views, name)
    assert difference_BT.shape == (B, numbers(name))
    known_BT = ~difference_BT.isnan()
    assert all(
        column_B[known_B].std() > 0
        for column_B, known_B in zip(difference_BT.T, known_BT.T, strict=True)
    )  # something to tell
    neither_B = ~(views.records[0].applied(name) | views.records[1].applied(name))
    assert (difference_BT[neither_B].nan_to_num() == 0).all()
    alike = Views(views.images, (views.records[0], views.records[0]))
    same_BT = difference(alike, name).nan_to_num()
    torch.testing.assert_close(same_BT, torch.zeros(B, numbers(name)))


def test_what_other_operators_hide_is_nan() -> None:
    """Tones where a view is equalized, hues where one is gray, what is mirrored in one alone."""
    views = drawn()
    first, second = views.records
    either = {
        name: first.applied(name) | second.applied(name) for name in ("grayscale", "equalize")
    }
    one_mirrored_B = first.applied("horizontal_flip") ^ second.applied("horizontal_flip")
    for hidden_B in (*either.values(), one_mirrored_B):
        assert 0 < hidden_B.sum() < B
    hidden = {name: difference(views, name).isnan() for name in views.records[0].names}
    expected = {
        "color_jitter": [either["equalize"]] * 2 + [either["grayscale"]] * 3,
        "random_resized_crop": [one_mirrored_B, *torch.zeros(2, B, dtype=torch.bool)],
        "rotate": [one_mirrored_B] * 2,
        **{name: [one_mirrored_B] for name in ("shear_x", "shear_y", "translate_x")},
    }
    for name, columns in expected.items():
        assert torch.equal(hidden.pop(name), torch.stack(columns, dim=1)), name
    assert not any(hidden_BT.any() for hidden_BT in hidden.values())


def test_every_operator_changes_one_property() -> None:
    assert sorted(name for names in PROPERTIES.values() for name in names) == sorted(OPERATORS)
    assert not set(PROPERTIES) & set(OPERATORS)  # a word means one or the other
    assert PROPERTIES["color"][:3] == ("color_jitter", "band_jitter", "grayscale")
    assert "rotate" in PROPERTIES["orientation"]
