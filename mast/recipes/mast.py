"""Recipes of MAST, at ImageNet's scale."""

from dataclasses import replace
from typing import Any

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import MastConfig
from mast.models import EncoderConfig, GaussianProjectorConfig


def mast5() -> PretrainConfig:
    """MAST-5 on ImageNet: ResNet-50, 1000 epochs, batch 2048.

    Paper: linear top-1 74.9, 1 %/10 % semi-supervised 55.2/70.2 (Table 1).
    Hyper-parameters of section 3.2 and of VICReg, whose protocol it follows: LARS, rate 1.6 at
    batch 2048, weight decay 1e-6, cosine after 10 epochs of warm-up, projector 8192-8192, d 4096.
    The objective is ours (docs/method.md): exempt blocks whose dimensions tell what the operators
    did, all operators from the start, no uncertainty. `mast5_guarded` is nearer to the paper.

    Cost, estimated and not measured: 6.3e19 FLOP for the encoder (4.1 GMAC forward, three times
    that with the backward, two views, 1.28 million images, 1000 epochs) and nearly as much for
    the projector, whose layers work at 49 locations: some 150 GPU hours at 30 % of an H200's
    790 TFLOP/s in bf16, half of that with `--objective.projector.pool before`.

        mast pretrain --data imagenet/train --recipe mast5
    """
    return PretrainConfig(
        recipe="mast5",
        size=224,
        views="mast5",
        schedule=ScheduleConfig(staged=False),
        objective=MastConfig(projector=GaussianProjectorConfig(hidden=8192, dim=4096)),
        encoder=EncoderConfig("resnet50"),
        optimizer=OptimizerConfig("lars", lr=0.2, weight_decay=1e-6, warmup=10),
        epochs=1000,
        batch_size=2048,
    )


def mast15() -> PretrainConfig:
    """MAST-15 on ImageNet: as mast5, with 15 operators.

    Paper: linear top-1 75.8, semi-supervised 55.8/71.4 (Table 1). Cost as mast5, and the
    augmentation's.
    """
    return replace(mast5(), recipe="mast15", views="mast15")


def mast19() -> PretrainConfig:
    """MAST-19 on ImageNet: as mast5, with 19 operators.

    Paper: linear top-1 75.8 (Table 5, row 3).
    """
    return replace(mast5(), recipe="mast19", views="mast19")


def mast5_guarded() -> PretrainConfig:
    """MAST-5 with learned masks, the paper's uncertainty and its two stages.

    Eq. 7 with what keeps it from collapsing (docs/method.md); `--objective.mode paper` is Eq. 7 as
    printed.
    """
    config = replace(mast5(), schedule=ScheduleConfig())
    return _with_objective(config, "mast5_guarded", mode="guarded", uncertainty=True)


def mast5_handcrafted() -> PretrainConfig:
    """MAST-5 with fixed disjoint masks instead of learned ones.

    Disjoint masks have no intersection, so the distances of the subspaces are added (Eq. 4).
    Paper: linear top-1 74.3 (Table 5, row 7).
    """
    return _with_objective(
        mast5_guarded(), "mast5_handcrafted", masks="handcrafted", composition="sum"
    )


def mast5_no_uncertainty() -> PretrainConfig:
    """MAST-5 without the predicted covariance and its KL term.

    Paper: linear top-1 74.1 (Table 5, row 8).
    """
    return _with_objective(mast5_guarded(), "mast5_no_uncertainty", uncertainty=False)


def mast5_uncertainty_only() -> PretrainConfig:
    """MAST-5 without masks: one distance, divided by the predicted covariance.

    Paper: Flowers-17 26.5, Cars 16.4 with ResNet-18 and 100 epochs (Table 6).
    """
    return _with_objective(mast5_guarded(), "mast5_uncertainty_only", masks="none")


def _with_objective(config: PretrainConfig, name: str, **changes: Any) -> PretrainConfig:
    return replace(config, recipe=name, objective=replace(config.objective, **changes))
