"""Recipes for one GPU: 224 pixels, and a batch that fits 24 GB."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import MastConfig, VICRegConfig
from mast.models import EncoderConfig, GaussianProjectorConfig, MLPConfig
from mast.recipes.mast import mast5
from mast.recipes.vicreg import vicreg5


def mast5_medium() -> PretrainConfig:
    """MAST-5 on one GPU: ResNet-50 at 224 pixels, batch 128 in two parts, 200 epochs, AdamW.

    For 50,000 images; `mast plan` says how many epochs other sets and hours want, what it costs on
    which GPU, and how many parts fit. The objective is that of `mast5_small`. Nobody has trained it
    to the end yet: rates are those in use for these encoders (AdamW 1e-3 at a batch of 256 with
    weight decay 0.05 for ConvNeXt, DINO's 5e-4 for ViTs).

        mast pretrain --data photos --recipe mast5_medium
    """
    return _medium(mast5(), "mast5_medium", "resnet50", lr=1e-3)


def mast5_medium_vit() -> PretrainConfig:
    """MAST-5 on one GPU: ViT-S/16, gradients clipped at 3, as mast5_medium.

    Drop-path is an option of the encoder: `--encoder.options '{"drop_path_rate": 0.1}'`.
    """
    name = "timm:vit_small_patch16_224"
    return _medium(mast5(), "mast5_medium_vit", name, lr=5e-4, clip=3.0)


def mast5_medium_convnext() -> PretrainConfig:
    """MAST-5 on one GPU: ConvNeXt-T, as mast5_medium; drop-path as for mast5_medium_vit."""
    return _medium(mast5(), "mast5_medium_convnext", "timm:convnext_tiny", lr=1e-3)


def vicreg5_medium() -> PretrainConfig:
    """VICReg with MAST-5's views on one GPU, to compare with mast5_medium."""
    return _medium(vicreg5(), "vicreg5_medium", "resnet50", lr=1e-3)


def _medium(
    config: PretrainConfig,
    name: str,
    encoder: str,
    lr: float,
    clip: float | None = None,
) -> PretrainConfig:
    objective = config.objective
    if isinstance(objective, MastConfig):
        gaussian = GaussianProjectorConfig(hidden=2048, dim=1024, pool="average")
        objective = replace(objective, projector=gaussian)
    elif isinstance(objective, VICRegConfig):
        sizes = MLPConfig(hidden=2048, dim=1024)
        objective = replace(objective, projector=sizes, invariance_weight=10.0)
    return replace(
        config,
        recipe=name,
        size=224,
        schedule=ScheduleConfig(staged=False),
        objective=objective,
        encoder=EncoderConfig(encoder),
        optimizer=OptimizerConfig("adamw", lr=lr, weight_decay=0.05, clip=clip, warmup=10),
        epochs=200,
        batch_size=128,
        accumulate=2,
    )
