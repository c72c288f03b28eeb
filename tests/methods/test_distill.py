"""A student learns what its teacher sees, in the space that is chosen."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from conformance import Variant, steps_and_resumes
from tiny import make_views

import mast
from mast.core.errors import UserError

OPERATORS = ["color_jitter", "rotate"]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of `mast adapt`; its encoder sees 32 pixels."""
    out = tmp_path_factory.mktemp("teacher") / "adapted"
    mast.adapt("toys@train:64", "resnet10t", untrained=True, size=32, out=out,
               operators=OPERATORS, device="cpu")  # fmt: skip
    return out


@pytest.mark.parametrize("ignore", [(), ("color",)])
def test_the_loss_is_one_minus_the_cosine_in_the_teachers_space(
    teacher: Path, ignore: tuple[str, ...]
) -> None:
    method = Variant("distill", {}, {"teacher": str(teacher), "ignore": ignore}).build()
    views = make_views(0)
    adapted = mast.load_adapted(teacher)
    cosines = []
    for images_BCHW in views.images:
        large_BCHW = F.interpolate(images_BCHW, (32, 32), mode="bilinear", antialias=True)
        target_BD = adapted(large_BCHW.clamp(0, 1), ignore=ignore)
        cosines.append(F.cosine_similarity(method.embed(images_BCHW), target_BD))
    loss = method(views, 0.0)["loss"]
    torch.testing.assert_close(loss, 1 - torch.cat(cosines).mean())


def test_it_steps_and_resumes_without_the_teacher_in_its_state(
    teacher: Path, tmp_path: Path
) -> None:
    variant = Variant("distill", {}, {"teacher": str(teacher), "ignore": ("color",)})
    steps_and_resumes(variant, "adamw", tmp_path)
    names = {name.partition(".")[0] for name in variant.build().state_dict()}
    assert names == {"encoder", "projector"}


def test_a_teacher_that_was_not_measured_ignores_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"objective\.ignore: expected objective\.teacher to be"):
        Variant("distill", {}, {"teacher": "efficientnet-lite0", "ignore": ("color",)}).build()
    config = mast.configure("distill_small", "toys@train:64", objective={"ignore": ["hue"]})
    with pytest.raises(UserError, match=r"objective\.ignore"):
        mast.pretrain(config)
