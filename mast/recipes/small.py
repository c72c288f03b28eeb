"""The small variants of all recipes."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods import MastConfig, VICRegConfig
from mast.models import EncoderConfig, GaussianProjectorConfig, MLPProjectorConfig


def small(config: PretrainConfig) -> PretrainConfig:
    """The small variant: ResNet-18 at 64 pixels, projector 1024-1024, d 512, AdamW, 100 epochs.

    Schedule, weight and pooling are what did best at small budgets for VICReg and the guarded
    masks (docs/results.md): all operators act from the start, guarded masks have one left out of
    half of the pairs and do without the uncertainty, the projector does without GeM, and
    invariance weighs 10.
    """
    objective, schedule = config.objective, config.schedule
    if isinstance(objective, MastConfig):
        # None: as the mode says, so that `--objective.mode paper` is still Eq. 7.
        uncertainty = True if objective.masks == "none" else None
        gaussian = GaussianProjectorConfig(hidden=1024, dim=512, pool="average")
        objective = replace(objective, projector=gaussian, uncertainty=uncertainty)
        leave_out = 0.5 if objective.mode == "guarded" else 0.0
        schedule = ScheduleConfig(staged=False, leave_out=leave_out)
    elif isinstance(objective, VICRegConfig):
        weight = objective.invariance_weight if schedule.staged else 10.0
        sizes = MLPProjectorConfig(hidden=1024, dim=512)
        objective = replace(objective, projector=sizes, invariance_weight=weight)
    return replace(
        config,
        recipe=f"{config.recipe}_small",
        size=64,
        schedule=schedule,
        objective=objective,
        encoder=EncoderConfig("resnet18"),
        optimizer=OptimizerConfig("adamw", lr=5e-3, weight_decay=1e-4, gate_lr=3e-4, warmup=10),
        epochs=100,
        batch_size=64,
    )
