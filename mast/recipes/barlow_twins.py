"""Recipes of Barlow Twins, at ImageNet's scale."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import BarlowTwinsConfig
from mast.recipes.mast import mast5


def barlow_twins() -> PretrainConfig:
    """Barlow Twins on ImageNet: ResNet-50, batch 2048, 1000 epochs, in VICReg's views.

    Its paper: linear top-1 73.2. LARS at 0.2 for 256 images, weight decay 1e-6, projector
    8192-8192-8192 (facebookresearch/barlowtwins). Biases and norms have the rate of the weights
    and a loss scaled by 0.024, as that code had it first; today they have a rate of 0.0048 there.

    Cost, estimated as for mast5: some 75 GPU hours.
    """
    return replace(
        mast5(),
        recipe="barlow_twins",
        views="vicreg",
        schedule=ScheduleConfig(staged=False),
        objective=BarlowTwinsConfig(),
        optimizer=OptimizerConfig("lars_official", lr=0.2, weight_decay=1e-6, warmup=10),
    )
