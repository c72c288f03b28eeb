"""Recipes of MAE, at ImageNet's scale."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import MAEConfig
from mast.models import EncoderConfig
from mast.recipes.mast import mast5

MEAN_OF_PATCHES = {"global_pool": "avg", "fc_norm": False}  # behind the last norm


def mae() -> PretrainConfig:
    """MAE on ImageNet: ViT-B/16, batch 4096, 800 epochs, one cropped and mirrored view.

    Its paper: fine-tuned top-1 83.6 after 1600 epochs, linear 68.0. AdamW at 1.5e-4 for 256 images
    with 40 epochs of warm-up, weight decay 0.05 (facebookresearch/mae). What differs here: AdamW's
    second moment decays by 0.999 (there 0.95), the encoder's positions are
    learned, and the representation is the mean of the patches, as the class token is no part of the
    loss. The paper of MAST does not say what MAE of a ResNet-50 is (Table 10).
    """
    return replace(
        mast5(),
        recipe="mae",
        views="mae",
        schedule=ScheduleConfig(staged=False),
        objective=MAEConfig(),
        encoder=EncoderConfig("timm:vit_base_patch16_224", MEAN_OF_PATCHES),
        optimizer=OptimizerConfig("adamw", lr=1.5e-4, weight_decay=0.05, warmup=40, final=0.0),
        epochs=800,
        batch_size=4096,
    )
