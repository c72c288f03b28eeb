"""Recipes of SwAV, at ImageNet's scale."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import SwAVConfig
from mast.recipes.mast import mast5


def swav() -> PretrainConfig:
    """SwAV on ImageNet: ResNet-50, batch 4096, 800 epochs, 2 views of 224 pixels and 6 of 96.

    Its paper: linear top-1 75.3. LARS at 0.3 for 256 images, weight decay 1e-6, 3000 prototypes,
    which stay as they are in the first epoch (facebookresearch/swav). Biases and norms are
    adapted by LARS and decay, too.

    Cost, estimated as for mast5: some 90 GPU hours.
    """
    return replace(
        mast5(),
        recipe="swav",
        views="multicrop",
        schedule=ScheduleConfig(staged=False),
        objective=SwAVConfig(frozen=1 / 800),
        optimizer=OptimizerConfig("lars", lr=0.3, weight_decay=1e-6, treat_alike=True, warmup=10),
        epochs=800,
        batch_size=4096,
    )
