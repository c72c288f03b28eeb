"""Recipes of VICReg, at ImageNet's scale."""

from dataclasses import replace

from mast.augment import ScheduleConfig
from mast.config import PretrainConfig
from mast.methods import VICRegConfig
from mast.models import MLPConfig
from mast.recipes.mast import mast5


def vicreg5() -> PretrainConfig:
    """VICReg with the five symmetric operators of MAST-5, all from the start.

    Paper: linear top-1 73.2 (Table 5, row 4). Cost, estimated as for mast5: some 75 GPU hours,
    as its expander works on pooled features.
    """
    return replace(
        mast5(),
        recipe="vicreg5",
        schedule=ScheduleConfig(staged=False),
        objective=VICRegConfig(projector=MLPConfig(hidden=8192, dim=8192)),
    )


def vicreg5_staged() -> PretrainConfig:
    """VICReg with the five operators in MAST's two stages.

    Paper: linear top-1 73.4 (Table 5, row 6).
    """
    return replace(vicreg5(), recipe="vicreg5_staged", schedule=ScheduleConfig(staged=True))


def vicreg5_augself() -> PretrainConfig:
    """VICReg whose representation has to tell by how much the colours of the views differ.

    The idea of AugSelf (Lee et al., NeurIPS 2021) over VICReg; the strongest control of MAST.
    """
    objective = VICRegConfig(projector=MLPConfig(hidden=8192, dim=8192), predicted=("color",))
    return replace(vicreg5(), recipe="vicreg5_augself", objective=objective)


def vicreg15() -> PretrainConfig:
    """VICReg with 15 operators, all from the start: richer augmentation without subspaces.

    Paper: linear top-1 73.1 (Table 5, row 2).
    """
    return replace(vicreg5(), recipe="vicreg15", views="mast15")


def vicreg() -> PretrainConfig:
    """VICReg with its official, asymmetric augmentation (blur 1.0/0.1, solarize 0/0.2) and LARS.

    Never beside `vicreg5` in one comparison: the views differ. VICReg paper: linear top-1 73.2.
    """
    own = vicreg5()
    optimizer = replace(own.optimizer, name="lars_official")
    return replace(own, recipe="vicreg", views="vicreg", optimizer=optimizer)
