"""Methods: what turns the views of images into a loss. One file each, one row here."""

from typing import NamedTuple

from mast.core.errors import UserError
from mast.methods import (
    barlow_twins,
    byol,
    dino,
    distill,
    lejepa,
    mae,
    moco,
    simclr,
    simsiam,
    supervised,
    swav,
    visreg,
)
from mast.methods.base import ENCODER as ENCODER
from mast.methods.base import Method as Method
from mast.methods.base import MethodConfig as MethodConfig
from mast.methods.collapse import collapse_signs as collapse_signs
from mast.methods.mast import Mast as Mast
from mast.methods.mast import MastConfig as MastConfig
from mast.methods.mast_c import MastC as MastC
from mast.methods.mast_c import MastCConfig as MastCConfig
from mast.methods.parts import HostInputs as HostInputs
from mast.methods.parts import Images as Images
from mast.methods.parts import Teacher as Teacher
from mast.methods.representations import Embedding as Embedding
from mast.methods.representations import save_embedding as save_embedding
from mast.methods.vicreg import VICReg as VICReg
from mast.methods.vicreg import VICRegConfig as VICRegConfig


class MethodEntry(NamedTuple):
    """A row of the registry: the name that its paper prints, its configuration and its class."""

    title: str
    config: type[MethodConfig]
    method: type[Method]


METHODS: dict[str, MethodEntry] = {
    "mast": MethodEntry("MAST (Huang et al., ICLR 2023)", MastConfig, Mast),
    "mast_c": MethodEntry("MAST-C (ours)", MastCConfig, MastC),
    "vicreg": MethodEntry("VICReg", VICRegConfig, VICReg),
    "simclr": MethodEntry("SimCLR", simclr.SimCLRConfig, simclr.SimCLR),
    "moco_v2": MethodEntry("MoCo v2", moco.MoCoConfig, moco.MoCo),
    "simsiam": MethodEntry("SimSiam", simsiam.SimSiamConfig, simsiam.SimSiam),
    "byol": MethodEntry("BYOL", byol.BYOLConfig, byol.BYOL),
    "barlow_twins": MethodEntry(
        "Barlow Twins", barlow_twins.BarlowTwinsConfig, barlow_twins.BarlowTwins
    ),
    "lejepa": MethodEntry("LeJEPA", lejepa.LeJEPAConfig, lejepa.LeJEPA),
    "visreg": MethodEntry("VISReg", visreg.VISRegConfig, visreg.VISReg),
    "swav": MethodEntry("SwAV", swav.SwAVConfig, swav.SwAV),
    "dino": MethodEntry("DINO", dino.DINOConfig, dino.DINO),
    "mae": MethodEntry("MAE", mae.MAEConfig, mae.MAE),
    "distill": MethodEntry("distillation", distill.DistillConfig, distill.Distill),
    "supervised": MethodEntry("supervised", supervised.SupervisedConfig, supervised.Supervised),
}


def method_of(config: MethodConfig) -> str:
    """The key in `METHODS` of the method that a configuration is of."""
    for name, entry in METHODS.items():
        if type(config) is entry.config:
            return name
    kinds = ", ".join(entry.config.__name__ for entry in METHODS.values())
    raise UserError(f"expected the configuration of a method ({kinds}), got {config!r}")
