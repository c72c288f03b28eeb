"""The methods of the paper keep the contract of `Method`, and what they refuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from conformance import Contract, Variant
from tiny import BATCH, ENCODER, OPERATORS, SIZE, build_method, make_views

import mast
from mast.augment import Views
from mast.cli import main
from mast.config import build_method as build_run
from mast.config import record
from mast.core.errors import UserError
from mast.models import Encoder, EncoderConfig
from paper.__main__ import PROGRAM
from paper.methods import BASELINES
from paper.methods.prcl import PrCL, PrCLConfig
from paper.outputs import MethodOutput

pytestmark = pytest.mark.usefixtures("baselines")


class TestEveryBaseline(Contract):
    variants = {  # noqa: RUF012
        "moco v3": Variant("moco_v3", {}, {}),
        "ifm": Variant("ifm", {}, {"queue": BATCH + 3}),
        "vi-simsiam": Variant("vi_simsiam", {}, {}),
        "looc": Variant("looc", {}, {"queue": BATCH + 3}, views=4),
        "clsa": Variant("clsa", {}, {"queue": BATCH + 3}, views=3),
        "infomin": Variant("infomin", {}, {"queue": BATCH + 3}, views=3),
        "obow": Variant("obow", {}, {"words": 2 * BATCH + 3}),
        "prcl": Variant("prcl", {}, {"queue": BATCH + 3}),
    }


def test_each_has_its_variant() -> None:
    assert {each.method for each in TestEveryBaseline.variants.values()} == BASELINES.keys()


@pytest.mark.parametrize(
    "recipe",
    [
        "looc",
        *(pytest.param(n, marks=pytest.mark.slow) for n in BASELINES if n not in ("looc", "ifm")),
    ],
)
def test_a_baseline_is_pretrained_and_measured(
    recipe: str,
    tiny: Callable[..., mast.PretrainConfig],
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the commands, which find its recipe, and its method in the run folder; IFM has no small
    one.
    """
    config, run = tmp_path / "config.yaml", str(tmp_path / "run")
    config.write_text(yaml.safe_dump(record(tiny(f"{recipe}_small", epochs=1))))
    assert main(["pretrain", "--config", str(config)], PROGRAM) == 0
    protocol = "ensemble" if recipe == "looc" else "embedding"
    words = ["evaluate", run, "--data", str(photos), "--protocols", protocol]
    assert main([*words, f"{protocol}.penalties=0.01"], PROGRAM) == 0
    assert list(Path(run, "evaluations").glob(f"{protocol}-*.json"))


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        ("looc", {"objective": {"preserved": ["hue"]}}, "unknown property that operators change"),
        ("prcl", {"objective": {"hidden": 0.0}}, "objective.hidden: expected .*, got 0"),
        ("infomin", {"views": "mast5"}, "views: expected 3 views .*, got 2; .* infomin"),
        ("infomin", {"encoder": {"name": "timm:vit_tiny_patch16_224"}}, "take images of 16 pixels"),
        ("looc", {"objective": {"preserved": ["orientation", "color"]}}, "views that share the"),
    ],
)
def test_what_cannot_be_is_refused(recipe: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_run(mast.configure(f"{recipe}_small", **changes))


def test_prcl_needs_a_map_that_fills_the_image() -> None:
    encoder = Encoder(ENCODER, SIZE + 2)
    with pytest.raises(UserError, match=r"'timm:resnet18' has 9 locations over 34 pixels"):
        PrCL(PrCLConfig(), encoder, OPERATORS)
    larger = Views(tuple(torch.rand(2, 3, 64, 64) for _ in range(2)), make_views(0).records)
    with pytest.raises(UserError, match="views of 32 pixels, the run's size, got 64"):
        build_method("prcl", {}, {"queue": BATCH})(larger, 0.0)


def test_words_may_have_another_width_than_the_representation() -> None:
    encoder = EncoderConfig("timm:mobilenetv3_small_050")
    method = build_method("obow", {}, {"words": BATCH}, encoder=encoder)
    assert method.encoder.map_dim != method.encoder.dim
    assert torch.isfinite(method(make_views(0), 0.0)["loss"])


@torch.no_grad()
def test_the_ensemble_of_looc_is_what_each_head_keeps() -> None:
    method = build_method("looc", {}, {"queue": BATCH}).eval()
    images = make_views(0).images[0]
    ensemble = MethodOutput(method, "ensemble")(images)
    representation_BC = method.encoder(images)
    width = ensemble.shape[1] // 3
    for head, part_BH in enumerate(ensemble.split(width, dim=1)):
        first = method.get_submodule(f"projector.heads.{head}.trunk.0")
        expected_BH = (representation_BC @ first.weight.T + first.bias).clamp(min=0)
        torch.testing.assert_close(part_BH, expected_BH)
