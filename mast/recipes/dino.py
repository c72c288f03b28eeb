"""Recipes of DINO, at ImageNet's scale."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import DINOConfig
from mast.models import EncoderConfig
from mast.recipes.mast import mast5


def dino() -> PretrainConfig:
    """DINO on ImageNet: ViT-S/16, batch 1024, 800 epochs, 2 views of 224 pixels and 8 of 96.

    Its paper: linear top-1 77.0, of the teacher, with 10 small views. AdamW at 5e-4 for 256 images,
    the teacher's temperature from 0.04 to 0.07 in 30 epochs (facebookresearch/dino). What differs
    here: number and scales of the views are what that code has by default, weight decay stays at
    0.04 (there it rises to 0.4), gradients are clipped at 3 as a whole (there each tensor's), and
    prototypes have unit length (there not, for this ViT).
    """
    return replace(
        mast5(),
        recipe="dino",
        views="dino",
        schedule=ScheduleConfig(staged=False),
        objective=DINOConfig(warmup=30 / 800, frozen=1 / 800),
        encoder=EncoderConfig(
            "timm:vit_small_patch16_224", {"drop_path_rate": 0.1, "dynamic_img_size": True}
        ),
        optimizer=OptimizerConfig("adamw", lr=5e-4, weight_decay=0.04, clip=3.0, final=0.0005),
        epochs=800,
        batch_size=1024,
    )
