"""Recipes of OBoW, at ImageNet's scale."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import OBoWConfig
from mast.recipes.mast import mast5


def obow() -> PretrainConfig:
    """OBoW on ImageNet: ResNet-50, batch 256, 200 epochs, words of the last block alone.

    Its paper: linear top-1 73.8, with words of blocks 3 and 4. The teacher sees the image, the
    student two crops of 160 pixels and five of 96. SGD at 0.03 with a warm-up of 10 epochs, weight
    decay 1e-4, 8192 words, momentum from 0.99 (valeoai/obow, ResNet50_OBoW_full). The
    weight decay acts on biases and norms, too. What differs in the views stands beside
    the preset `obow` (`mast/augment/presets.py`).

    Cost, estimated as for mast5: some 18 GPU hours.
    """
    return replace(
        mast5(),
        recipe="obow",
        views="obow",
        schedule=ScheduleConfig(staged=False),
        objective=OBoWConfig(),
        optimizer=OptimizerConfig(
            "sgd", lr=0.03, weight_decay=1e-4, treat_alike=True, warmup=10, final=0.001
        ),
        epochs=200,
        batch_size=256,
    )
