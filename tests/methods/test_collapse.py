"""Eq. 7 as printed collapses, the form that trains does not, and warnings name each collapse."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mast.augment import Record, Views
from mast.core.optim import OptimizerConfig, make_optimizer
from mast.methods import Mast, MastConfig
from mast.models import EncoderConfig
from mast.models.encoders import Encoder
from mast.models.heads import GaussianProjectorConfig
from mast.models.torchvision_models import Encoding

OPERATORS = ("crop", "flip", "jitter")
FEATURES, BATCH, STEPS = 18, 64, 300
HEALTHY = {
    "stat/mask_mean": 0.4,
    "stat/mask_cosine": 0.3,
    "stat/uncertainty": 1.0,
    "stat/embedding_std": 0.9,
}
COLLAPSES = {
    "masks died": {"stat/mask_mean": 0.001},
    "uncertainty exploded": {"stat/uncertainty": 290.0},
    "masks hide": {"stat/mask_cosine": 0.95, "stat/mask_active_share": 0.3},
    "variance collapse": {"stat/embedding_std": 0.1},
}


class Given(Encoder):
    """An encoder that takes features for images."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.config, self.dim = EncoderConfig(), FEATURES

    def encode(self, images_BCHW: Tensor) -> Encoding:
        """The features themselves."""
        return Encoding(images_BCHW, images_BCHW[:, None])


def build(**options: Any) -> Mast:
    """MAST over given features."""
    torch.manual_seed(0)
    sizes = GaussianProjectorConfig(hidden=32, dim=24, pool="average")
    return Mast(MastConfig(projector=sizes, **options), Given(), OPERATORS)


def views(generator: torch.Generator) -> Views:
    """Features in thirds; the one operator of a sample disturbs one third of them."""
    chosen_B = torch.randint(0, 3, (BATCH,), generator=generator)
    disturbed_BC = torch.arange(FEATURES) // (FEATURES // 3) == chosen_B[:, None]
    base_BC = torch.randn(BATCH, FEATURES, generator=generator)
    noise_BC = 0.1 + disturbed_BC.float()
    first, second = (
        base_BC + noise_BC * torch.randn(base_BC.shape, generator=generator) for _ in range(2)
    )
    record = Record(OPERATORS, torch.nn.functional.one_hot(chosen_B, 3).bool(), {})
    return Views((first, second), (record, record))


def train(method: Mast) -> list[dict[str, float]]:
    """Metrics of the first and of the last step."""
    config = OptimizerConfig("adamw", lr=0.02, gate_lr=0.01, weight_decay=0.0)
    optimizer = make_optimizer(method.parameter_groups(), config, 256)
    generator = torch.Generator().manual_seed(0)
    ends = []
    for step in range(STEPS):
        optimizer.zero_grad()
        output = method(views(generator), 0.0)
        if step in (0, STEPS - 1):
            ends.append(
                {name: value.item() for name, value in output.items()} | method.statistics()
            )
        output["loss"].backward()
        optimizer.step()
    return ends


@torch.no_grad()
def distances(method: Mast) -> tuple[Tensor, Tensor]:
    """Mean squared difference inside each operator's mask, and over all dimensions, shape (K)."""
    batch = views(torch.Generator().manual_seed(1))
    first_BD, second_BD = (method.projector(Encoding(x, x[:, None])).mean_BD for x in batch.images)
    squared_KD = torch.stack(
        [(first_BD - second_BD).square()[active_B].mean(dim=0) for active_B in batch.active_BK.T]
    )
    weight_KD = method.masks().square().T
    kept_K = (weight_KD * squared_KD).sum(dim=1) / weight_KD.sum(dim=1)
    return kept_K, squared_KD.mean(dim=1)


@pytest.mark.slow
def test_width_reward_keeps_masks_from_concentrating() -> None:
    unrewarded = build(uncertainty=False, sparsity_weight=0.0)
    assert train(unrewarded)[1]["stat/mask_active_share"] < 0.45
    rewarded = build(uncertainty=False)
    assert train(rewarded)[1]["stat/mask_active_share"] > 0.5


def test_as_printed_it_collapses() -> None:
    method = build(printed=True)
    start, end = train(method)
    assert start["stat/mask_mean"] > 0.3
    assert end["stat/mask_mean"] < 0.02
    assert end["stat/uncertainty"] > 3.0 * start["stat/uncertainty"]
    assert any(text.startswith("masks died") for text in method.warnings(end))


def test_masks_and_uncertainty_are_held() -> None:
    """Each operator disturbs a third of the features; its mask keeps the other two thirds."""
    method = build()
    start, end = train(method)
    torch.testing.assert_close(method.masks().square().mean(dim=0), torch.ones(len(OPERATORS)))
    assert end["stat/mask_active_share"] == pytest.approx(2 / 3, abs=0.15)
    kept, whole = distances(method)
    assert (kept < 0.5 * whole).all()
    assert end["stat/uncertainty"] < 5.0 * start["stat/uncertainty"]
    assert end["stat/embedding_std"] > 0.5
    assert list(method.warnings(end)) == []


def named(method: Mast, metrics: dict[str, float]) -> list[str]:
    return [text.split(":")[0] for text in method.warnings(metrics)]


def test_heads_that_predict_nothing_are_named_late_in_a_run() -> None:
    poor = {"stat/predicted_by_block_color_jitter": 0.01, "stat/predicted_by_block_grayscale": 0.4}
    method = build()
    assert named(method, {**HEALTHY, **poor, "progress": 0.2}) == []
    (text,) = method.warnings({**HEALTHY, **poor, "progress": 0.8})
    assert text.startswith("nothing predicted: heads of color jitter (from the block) do")


def test_every_collapse_is_named_where_it_can_happen() -> None:
    printed = build(printed=True)
    everything = {name: value for part in COLLAPSES.values() for name, value in part.items()}
    assert named(printed, HEALTHY) == named(build(), {}) == []
    assert named(printed, everything) == list(COLLAPSES)
    fixed = build(printed=True, masks="none", uncertainty=False)
    assert named(fixed, everything) == ["variance collapse"]
