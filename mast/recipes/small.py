"""The small variants of all recipes."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import MastCConfig, MastConfig, VICRegConfig
from mast.methods.barlow_twins import BarlowTwinsConfig
from mast.methods.byol import BYOLConfig
from mast.methods.dino import DINOConfig
from mast.methods.lejepa import LeJEPAConfig
from mast.methods.mae import MAEConfig
from mast.methods.moco import MoCoConfig
from mast.methods.simclr import SimCLRConfig
from mast.methods.simsiam import SimSiamConfig
from mast.methods.swav import SwAVConfig
from mast.methods.visreg import VISRegConfig
from mast.models import EncoderConfig, MLPConfig
from mast.models.heads import GaussianProjectorConfig
from mast.recipes.others import MEAN_OF_PATCHES

# Changes of an objective and of its subclasses.
SMALL: dict[type, dict[str, Any]] = {
    MastConfig: {"projector": GaussianProjectorConfig(hidden=1024, dim=512, pool="average")},
    MastCConfig: {"projector": MLPConfig(hidden=1024, dim=512)},
    VICRegConfig: {"projector": MLPConfig(hidden=1024, dim=512)},
    BarlowTwinsConfig: {"projector": MLPConfig(hidden=1024, dim=512)},
    VISRegConfig: {
        "projector": MLPConfig(hidden=1024, dim=128), "directions": 256, "regularizer_weight": 0.6,
    },
    LeJEPAConfig: {"projector": MLPConfig(hidden=1024, dim=128), "directions": 256},
    SimCLRConfig: {"projector": MLPConfig(hidden=1024, dim=128)},
    SimSiamConfig: {"projector": MLPConfig(hidden=1024, dim=512), "bottleneck": 128},
    BYOLConfig: {"projector": MLPConfig(hidden=1024, dim=256), "momentum": 0.99},
    MoCoConfig: {"projector": MLPConfig(hidden=512, dim=128), "queue": 4096, "momentum": 0.99},
    SwAVConfig: {"projector": MLPConfig(hidden=1024, dim=128), "prototypes": 128, "frozen": 0.01},
    DINOConfig: {
        "projector": MLPConfig(hidden=1024, dim=128), "prototypes": 1024, "momentum": 0.99,
        "teacher_temperature": 0.04, "frozen": 0.1,
    },
    MAEConfig: {"dim": 128, "depth": 2, "heads": 4},
}  # fmt: skip
# Replaces presets whose views have fixed sizes by ones of the run's size.
SMALL_VIEWS = {"multicrop": "simclr", "lejepa": "simclr", "dino": "dino_small"}


def small(config: PretrainConfig) -> PretrainConfig:
    """The small variant: ResNet-18 at 64 pixels, small projectors, AdamW, 100 epochs.

    MAST and VICReg have the schedule, weights and pooling that did best at small budgets
    (docs/results.md): all operators act from the start, though MAST leaves one out of half of the
    pairs; its projector has no GeM, and invariance weighs 10. Eq. 7 as printed has two stages.
    Contrastive methods have a higher learning rate (log.md).
    """
    schedule, lr = config.schedule, 5e-3
    match config.objective:
        case MastConfig(printed=False):
            schedule = ScheduleConfig(staged=False, leave_out=0.5)
        case MastCConfig(compare="contrast"):
            lr = 4.5e-2
    return replace(
        config,
        recipe=f"{config.recipe}_small",
        size=64,
        views=SMALL_VIEWS.get(config.views, config.views),
        schedule=schedule,
        objective=_objective(config),
        encoder=_encoder(config),
        optimizer=OptimizerConfig("adamw", lr, weight_decay=1e-4, gate_lr=3e-4, warmup=10),
        epochs=100,
        batch_size=64,
    )


def _encoder(config: PretrainConfig) -> EncoderConfig:
    """A ResNet-18; for methods that mask patches, a ViT-Ti with 16 x 16 patches."""
    if isinstance(config.objective, MAEConfig):
        return EncoderConfig("timm:vit_tiny_patch16_224", {"patch_size": 4, **MEAN_OF_PATCHES})
    return EncoderConfig("resnet18")


def _objective(config: PretrainConfig) -> Any:
    """The objective with sizes adapted to the small batch and short run."""
    objective: Any = config.objective
    changes = next((of for kind, of in SMALL.items() if isinstance(objective, kind)), {})
    if isinstance(objective, VICRegConfig) and not config.schedule.staged:
        changes = {**changes, "invariance_weight": 10.0}
    if isinstance(objective, MastCConfig) and objective.compare == "contrast":
        changes = {"projector": MLPConfig(hidden=1024, dim=128)}
    return replace(objective, **deepcopy(changes))
