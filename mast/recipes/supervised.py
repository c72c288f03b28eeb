"""Recipes that learn from labels, at ImageNet's scale."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import SupervisedConfig
from mast.recipes.mast import mast5


def supervised() -> PretrainConfig:
    """Supervised training on ImageNet: ResNet-50, batch 256, 90 epochs, in the views of MAST-5.

    The paper: linear top-1 76.5 (Table 1). SGD at 0.1, weight decay 1e-4, as PyTorch's reference
    training, whose rate falls in steps, whose biases and norms decay as well, and whose views are
    crops and flips; both views of an image are learned from here.

    Cost, estimated as for mast5: some 7 GPU hours.
    """
    return replace(
        mast5(),
        recipe="supervised",
        schedule=ScheduleConfig(staged=False),
        objective=SupervisedConfig(),
        optimizer=OptimizerConfig("sgd", lr=0.1, weight_decay=1e-4, warmup=0, final=0.0),
        epochs=90,
        batch_size=256,
    )
