"""A student learns what its teacher sees, in the space that is chosen."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from conformance import Variant, steps_and_resumes
from tiny import make_views

import mast


def test_a_student_learns_the_teachers_space(tmp_path: Path) -> None:
    folder = tmp_path / "adapted"
    mast.adapt("toys@train:64", "resnet10t", untrained=True, size=32, out=folder,
               operators=["color_jitter", "rotate"], device="cpu")  # fmt: skip
    variant = Variant("distill", {}, {"teacher": str(folder), "ignore": ("color",)})
    method, views, teacher = variant.build(), make_views(0), mast.load_adapted(folder)
    cosines = []
    for images_BCHW in views.images:
        large_BCHW = F.interpolate(images_BCHW, (32, 32), mode="bilinear", antialias=True)
        target_BD = teacher(large_BCHW.clamp(0, 1), ignore="color")
        cosines.append(F.cosine_similarity(method.embed(images_BCHW), target_BD))
    torch.testing.assert_close(method(views, 0.0)["loss"], 1 - torch.cat(cosines).mean())
    steps_and_resumes(variant, "adamw", tmp_path)


def test_a_teacher_that_does_not_fit_is_refused() -> None:
    with pytest.raises(mast.UserError, match=r"objective\.ignore: expected objective\.teacher"):
        Variant("distill", {}, {"ignore": ("color",)}).build()
    with pytest.raises(mast.UserError, match="has other features than when the run started"):
        Variant("distill", {}, {}).build().set_extra_state(torch.zeros(1280))
