"""Recipes of BYOL, at ImageNet's scale."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import BYOLConfig
from mast.recipes.mast import mast5


def byol() -> PretrainConfig:
    """BYOL on ImageNet: ResNet-50, batch 4096, 1000 epochs, in its own views, which are VICReg's.

    Its paper: linear top-1 74.3. LARS at 0.2 for 256 images, weight decay 1.5e-6, momentum from
    0.996 (google-deepmind/deepmind-research, byol).

    Cost, estimated as for mast5: some 100 GPU hours.
    """
    return replace(
        mast5(),
        recipe="byol",
        views="vicreg",
        schedule=ScheduleConfig(staged=False),
        objective=BYOLConfig(momentum=0.996),
        optimizer=OptimizerConfig(
            "lars_official", lr=0.2, weight_decay=1.5e-6, warmup=10, final=0.0
        ),
        batch_size=4096,
    )
