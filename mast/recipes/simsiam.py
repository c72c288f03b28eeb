"""Recipes of SimSiam, at ImageNet's scale."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import SimSiamConfig, VISimSiamConfig
from mast.recipes.mast import mast5


def simsiam() -> PretrainConfig:
    """SimSiam on ImageNet: ResNet-50, batch 512, 100 epochs, in MoCo v2's views.

    Its paper: linear top-1 68.1 (71.3 after 800 epochs). SGD at 0.05 for 256 images, weight decay
    1e-4, of biases and norms, too, no warm-up, the predictor's rate constant
    (facebookresearch/simsiam).

    Cost, estimated as for mast5: some 8 GPU hours.
    """
    return replace(
        mast5(),
        recipe="simsiam",
        views="moco",
        schedule=ScheduleConfig(staged=False),
        objective=SimSiamConfig(),
        optimizer=OptimizerConfig(
            "sgd", lr=0.05, weight_decay=1e-4, treat_alike=True, warmup=0, final=0.0
        ),
        epochs=100,
        batch_size=512,
    )


def simsiam_augself() -> PretrainConfig:
    """SimSiam whose representation has to tell how crop and colour differ between the views.

    AugSelf (Lee et al., NeurIPS 2021), which adds it to SimSiam; its heads and their loss are ours.
    """
    objective = SimSiamConfig(predicted=("position", "color"))
    return replace(simsiam(), recipe="simsiam_augself", objective=objective)


def vi_simsiam() -> PretrainConfig:
    """VI-SimSiam as SimSiam: the hyper-parameters of its paper are not known.

    The paper: linear top-1 19.7 on Flowers-17, where SimSiam has 24.6 (Table 6).
    """
    return replace(simsiam(), recipe="vi_simsiam", objective=VISimSiamConfig())
