"""Every public function names an argument of the wrong type, before it does anything."""

import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

import mast
from mast.core.errors import UserError
from mast.data import BrokenImageError
from mast.views import ToCanvas

PARAMETERS = [
    pytest.param(getattr(mast, public), name, id=f"{public}-{name}")
    for public in mast.PUBLIC
    if public not in ("Invariance", "PretrainConfig", "UserError")  # scikit-learn's check in fit
    for name in inspect.signature(getattr(mast, public)).parameters
    if name != "changes"  # of `configure`: any field of a configuration, checked as such
]


@pytest.mark.parametrize(("function", "name"), PARAMETERS)
def test_an_argument_of_the_wrong_type_is_named(function: Callable[..., Any], name: str) -> None:
    with pytest.raises(UserError, match=name):
        function(**{name: object()})


@pytest.mark.parametrize("images", [None, "x", object(), torch.zeros(2), [None]])
def test_what_is_no_image_is_refused(images: Any) -> None:
    maker = mast.ViewMaker("mast5", 16)
    for call in (maker, maker.to_canvas, ToCanvas(20)):
        with pytest.raises((UserError, BrokenImageError)):
            call(images)


@pytest.mark.parametrize("name", [field.name for field in fields(mast.PretrainConfig)])
def test_a_field_of_the_wrong_type_is_named(name: str) -> None:
    config = replace(mast.configure("mast_c5_small"), **{name: object()})
    for call in (lambda: mast.pretrain(config), lambda: mast.configure(**{name: object()})):
        with pytest.raises(UserError, match=name):
            call()
