"""Recipes of SimCLR, at ImageNet's scale."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import SimCLRConfig
from mast.recipes.mast import mast5


def simclr() -> PretrainConfig:
    """SimCLR on ImageNet: ResNet-50, batch 4096, 1000 epochs, in its own views.

    Its paper: linear top-1 69.3. LARS at 0.3 for 256 images, weight decay 1e-6, temperature 0.1,
    projector 2048-128. What the official code has by default today differs: three layers in the
    projector, weight decay 1e-4. There both views share BatchNorm's statistics; here each has its
    own.

    Cost, estimated as for mast5: some 75 GPU hours.
    """
    return replace(
        mast5(),
        recipe="simclr",
        views="simclr",
        schedule=ScheduleConfig(staged=False),
        objective=SimCLRConfig(),
        optimizer=OptimizerConfig("lars_official", lr=0.3, weight_decay=1e-6, warmup=10, final=0.0),
        batch_size=4096,
    )
