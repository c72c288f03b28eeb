"""Recipes of MoCo v2 and v3, and of what was changed of them, at ImageNet's scale."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import InfoMinConfig, MoCoConfig, MoCoV3Config, PrCLConfig
from mast.recipes.mast import mast5


def moco_v2() -> PretrainConfig:
    """MoCo v2 on ImageNet: ResNet-50, batch 256, 800 epochs, in its own views.

    Its paper: linear top-1 71.1 (67.5 after 200 epochs). SGD at 0.03, weight decay 1e-4, no
    warm-up, temperature 0.2, a queue of 65,536 (facebookresearch/moco), where
    the weight decay acts on biases and norms, too.

    Cost, estimated as for mast5: some 40 GPU hours, as one of two views has no backward pass.
    """
    return replace(
        mast5(),
        recipe="moco_v2",
        views="moco",
        schedule=ScheduleConfig(staged=False),
        objective=MoCoConfig(),
        optimizer=OptimizerConfig(
            "sgd", lr=0.03, weight_decay=1e-4, treat_alike=True, warmup=0, final=0.0
        ),
        epochs=800,
        batch_size=256,
    )


def moco_v3() -> PretrainConfig:
    """MoCo v3 on ImageNet: ResNet-50, batch 4096, 1000 epochs, in its own views.

    Its official code: linear top-1 74.6. LARS at 0.3 for 256 images, weight decay 1.5e-6,
    temperature 1, momentum from 0.996 (facebookresearch/moco-v3).

    Cost, estimated as for mast5: some 100 GPU hours.
    """
    return replace(
        mast5(),
        recipe="moco_v3",
        views="moco_v3",
        schedule=ScheduleConfig(staged=False),
        objective=MoCoV3Config(momentum=0.996),
        optimizer=OptimizerConfig(
            "lars_official", lr=0.3, weight_decay=1.5e-6, warmup=10, final=0.0
        ),
        batch_size=4096,
    )


def ifm_moco_v2() -> PretrainConfig:
    """MoCo v2 with implicit feature modification, on ImageNet-100: 200 epochs, batch 512.

    Robinson et al., NeurIPS 2021: linear top-1 81.4 on ImageNet-100. SGD at 0.4 for 256 images,
    epsilon 0.1, both losses of one weight (joshr17/IFM).
    """
    return replace(
        moco_v2(),
        recipe="ifm_moco_v2",
        objective=MoCoConfig(momentum=0.99, hardness=0.1),
        optimizer=OptimizerConfig(
            "sgd", lr=0.4, weight_decay=1e-4, treat_alike=True, warmup=0, final=0.0
        ),
        epochs=200,
        batch_size=512,
    )


def prcl() -> PretrainConfig:
    """MoCo v2 that also tells hidden pixels, on ImageNet: ResNet-50, batch 256, 800 epochs.

    Li et al., Addressing Feature Suppression in Unsupervised Visual Representations, 2020: linear
    top-1 71.0, as the paper of MAST prints it (Table 1). No code was found: what is hidden, how it
    is told and the weight of both terms are chosen here, all else is MoCo v2's.

    Cost, estimated as for mast5: some 70 GPU hours, as every query is seen twice.
    """
    return replace(moco_v2(), recipe="prcl", objective=PrCLConfig())


def infomin() -> PretrainConfig:
    """InfoMin on ImageNet: MoCo v2 in its views, with a jigsaw; ResNet-50, batch 256, 800 epochs.

    Tian et al., What Makes for Good Views for Contrastive Learning, NeurIPS 2020: linear top-1 73.0
    (70.1 after 200 epochs). Temperature 0.15, all else as MoCo v2 (HobbitLong/PyContrast). What
    differs in the views stands beside the preset `infomin` (`mast/augment/presets.py`).

    Cost, estimated as for mast5: some 60 GPU hours.
    """
    return replace(moco_v2(), recipe="infomin", views="infomin", objective=InfoMinConfig())
