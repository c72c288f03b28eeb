"""Recipes of MAST, MAST-C and VICReg: at ImageNet's scale, and for one GPU."""

from dataclasses import replace
from typing import Any

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import MastCConfig, MastConfig, VICRegConfig
from mast.methods.base import MethodConfig
from mast.methods.parts import PredictionConfig
from mast.models import EncoderConfig, MLPConfig

# ------------------------------------------------------------- MAST, the objective of the paper


def mast5() -> PretrainConfig:
    """MAST-5 on ImageNet: ResNet-50, 1000 epochs, batch 2048, two stages.

    Paper: linear top-1 74.9, 1 %/10 % semi-supervised 55.2/70.2 (Table 1). Eq. 7 in the form that
    trains (docs/method.md): learned masks, the predicted uncertainty, the projector of appendix A.
    Hyperparameters of the paper's section 3.2 and of VICReg, whose protocol it follows: LARS,
    learning rate 1.6 at batch 2048, weight decay 1e-6, cosine after 10 epochs of warm-up, projector
    8192-8192, d 4096.

    Estimated cost, not measured: 6.3e19 FLOP (4.1 GMAC forward, three times that with backward,
    two views, 1.28 million images, 1000 epochs), some 75 GPU hours at 24 % of an H200's
    989 TFLOP/s in bf16; nearly as much again for the projector, which runs at 49 locations, unless
    `objective.projector.pool=before`.
    """
    return PretrainConfig(
        recipe="mast5",
        size=224,
        views="mast5",
        objective=MastConfig(),
        encoder=EncoderConfig("resnet50"),
        optimizer=OptimizerConfig("lars", lr=0.2, weight_decay=1e-6, warmup=10),
        epochs=1000,
        batch_size=2048,
    )


def mast15() -> PretrainConfig:
    """MAST-15 on ImageNet: as mast5, with 15 operators.

    Paper: linear top-1 75.8, semi-supervised 55.8/71.4 (Table 1). Cost: as mast5, plus
    augmentation.
    """
    return replace(mast5(), recipe="mast15", views="mast15")


def mast5_printed() -> PretrainConfig:
    """MAST-5 with Eq. 7 as printed, which collapses.

    Masks die, the uncertainty explodes, and the encoder ends below an untrained one
    (docs/method.md); the run warns of both.
    """
    return replace(mast5(), recipe="mast5_printed", objective=MastConfig(printed=True))


# ---------------------------------------------------------------------------------- MAST-C, ours


def mast_c5() -> PretrainConfig:
    """MAST-C with five operators on ImageNet: ResNet-50, 1000 epochs, batch 2048.

    SimCLR's contrast, each image in the subspace of the operators that acted on it, with SimCLR's
    learning rate, projector and temperature; heads on all stages of the encoder predict the
    operators' parameters (docs/method.md). Cost: as mast5, without its projector.

        mast pretrain imagenet/train --recipe mast_c5
    """
    optimizer = OptimizerConfig("lars_official", lr=0.3, weight_decay=1e-6, warmup=10, final=0.0)
    return imagenet("mast_c5", MastCConfig(), optimizer)


def mast_c15() -> PretrainConfig:
    """MAST-C with 15 operators on ImageNet: as mast_c5."""
    return replace(mast_c5(), recipe="mast_c15", views="mast15")


def mast_c5_distance() -> PretrainConfig:
    """MAST-C over VICReg's distance, which skips the color block for pairs whose color changed.

    Heads on block and representation predict the operators' parameters. Projector and optimizer are
    those of vicreg5.
    """
    objective = MastCConfig(
        compare="distance",
        exempt_share=0.03,
        predicted=("color",),
        predict_from=("block", "representation"),
        prediction=PredictionConfig(weight=0.5),
        projector=MLPConfig(hidden=8192, dim=8192),
    )
    return replace(vicreg5(), recipe="mast_c5_distance", objective=objective)


# -------------------------------------------------------------------------------------- VICReg


def vicreg5() -> PretrainConfig:
    """VICReg with the five symmetric operators of MAST-5, all from the start.

    Paper: linear top-1 73.2 (Table 5, row 4). Cost as mast5.
    """
    return replace(
        mast5(),
        recipe="vicreg5",
        schedule=ScheduleConfig(staged=False),
        objective=VICRegConfig(projector=MLPConfig(hidden=8192, dim=8192)),
    )


def vicreg5_staged() -> PretrainConfig:
    """VICReg with the five operators in MAST's two stages.

    Paper: linear top-1 73.4 (Table 5, row 6).
    """
    return replace(vicreg5(), recipe="vicreg5_staged", schedule=ScheduleConfig(staged=True))


def vicreg5_augself() -> PretrainConfig:
    """VICReg + AugSelf: heads predict how much the colors of the views differ.

    The idea of AugSelf (Lee et al., NeurIPS 2021) on top of VICReg; a control for MAST-C.
    """
    objective = VICRegConfig(projector=MLPConfig(hidden=8192, dim=8192), predicted=("color",))
    return replace(vicreg5(), recipe="vicreg5_augself", objective=objective)


def vicreg() -> PretrainConfig:
    """VICReg with its official, asymmetric augmentation (blur 1.0/0.1, solarize 0/0.2) and LARS.

    Do not compare it with `vicreg5`: the views differ. VICReg paper: linear top-1 73.2.
    """
    own = vicreg5()
    optimizer = replace(own.optimizer, name="lars_official")
    return replace(own, recipe="vicreg", views="vicreg", optimizer=optimizer)


def imagenet(
    name: str, objective: MethodConfig, optimizer: OptimizerConfig, **changes: Any
) -> PretrainConfig:
    """A recipe that is `vicreg5` where it does not differ."""
    config = replace(vicreg5(), recipe=name, objective=objective, optimizer=optimizer)
    return replace(config, **changes)


# ----------------------------- one GPU: 224 pixels, and a batch that should fit into 24 GB


def mast_c5_medium() -> PretrainConfig:
    """MAST-C on one GPU: ResNet-50 at 224 pixels, batch 96, 200 epochs, AdamW.

    For 50,000 images; `mast plan` scales the epochs to other sets and time limits, and estimates
    the cost per GPU. Objective as in `mast_c5_small`. It has not been trained to the end: learning
    rates are the usual ones for these encoders (AdamW 1e-3 at batch size 256 with weight decay 0.05
    for ConvNeXt, DINO's 5e-4 for ViTs).

        mast pretrain photos --recipe mast_c5_medium
    """
    return _medium(mast_c5(), "mast_c5_medium", "resnet50", lr=1e-3)


def mast_c5_medium_vit() -> PretrainConfig:
    """MAST-C on one GPU: ViT-S/16, gradients clipped at 3, as mast_c5_medium.

    Drop-path is an option of the encoder: `encoder.options='{"drop_path_rate": 0.1}'`.
    """
    name = "timm:vit_small_patch16_224"
    return _medium(mast_c5(), "mast_c5_medium_vit", name, lr=5e-4, clip=3.0)


def mast_c5_medium_convnext() -> PretrainConfig:
    """MAST-C on one GPU: ConvNeXt-T, as mast_c5_medium; drop-path as for mast_c5_medium_vit."""
    return _medium(mast_c5(), "mast_c5_medium_convnext", "timm:convnext_tiny", lr=1e-3)


def vicreg5_medium() -> PretrainConfig:
    """VICReg with MAST-5's views on one GPU, to compare with mast_c5_medium."""
    return _medium(vicreg5(), "vicreg5_medium", "resnet50", lr=1e-3)


def _medium(
    config: PretrainConfig, name: str, encoder: str, lr: float, clip: float | None = None
) -> PretrainConfig:
    objective = config.objective
    if isinstance(objective, VICRegConfig):
        sizes = MLPConfig(hidden=2048, dim=1024)
        objective = replace(objective, projector=sizes, invariance_weight=10.0)
    return replace(
        config,
        recipe=name,
        size=224,
        objective=objective,
        encoder=EncoderConfig(encoder),
        optimizer=OptimizerConfig("adamw", lr=lr, weight_decay=0.05, clip=clip, warmup=10),
        epochs=200,
        batch_size=96,
    )
