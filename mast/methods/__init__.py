"""Methods: what turns the views of images into a loss. One file each, one row here."""

from typing import NamedTuple

from mast.core.errors import UserError
from mast.methods.barlow_twins import BarlowTwins, BarlowTwinsConfig
from mast.methods.base import ENCODER, Method, MethodConfig, PairConfig
from mast.methods.byol import BYOL, BYOLConfig
from mast.methods.clsa import CLSA, CLSAConfig
from mast.methods.collapse import collapse_checks
from mast.methods.dino import DINO, DINOConfig
from mast.methods.infomin import InfoMin, InfoMinConfig
from mast.methods.looc import LooC, LooCConfig
from mast.methods.mae import MAE, MAEConfig
from mast.methods.mast import Mast, MastConfig
from mast.methods.mast_paper import MODES
from mast.methods.moco import MoCo, MoCoConfig
from mast.methods.moco_v3 import MoCoV3, MoCoV3Config
from mast.methods.obow import OBoW, OBoWConfig
from mast.methods.parts import HostInputs, Images, Noise, Part, Prototypes, Queue, Teacher
from mast.methods.prcl import PrCL, PrCLConfig
from mast.methods.representations import (
    Embedding,
    EncoderAndEmbedding,
    Ensemble,
    PredictedUncertainty,
    predicts_uncertainty,
    save_embedding,
)
from mast.methods.simclr import SimCLR, SimCLRConfig
from mast.methods.simsiam import SimSiam, SimSiamConfig
from mast.methods.supervised import Supervised, SupervisedConfig
from mast.methods.swav import SwAV, SwAVConfig
from mast.methods.vi_simsiam import VISimSiam, VISimSiamConfig
from mast.methods.vicreg import VICReg, VICRegConfig


class Entry(NamedTuple):
    """A row of the registry: the name that its paper prints, its configuration and its class."""

    title: str
    config: type[MethodConfig]
    method: type[Method]


METHODS: dict[str, Entry] = {
    "mast": Entry("MAST", MastConfig, Mast),
    "vicreg": Entry("VICReg", VICRegConfig, VICReg),
    "simclr": Entry("SimCLR", SimCLRConfig, SimCLR),
    "moco_v2": Entry("MoCo v2", MoCoConfig, MoCo),
    "moco_v3": Entry("MoCo v3", MoCoV3Config, MoCoV3),
    "simsiam": Entry("SimSiam", SimSiamConfig, SimSiam),
    "vi_simsiam": Entry("VI-SimSiam", VISimSiamConfig, VISimSiam),
    "byol": Entry("BYOL", BYOLConfig, BYOL),
    "barlow_twins": Entry("Barlow Twins", BarlowTwinsConfig, BarlowTwins),
    "swav": Entry("SwAV", SwAVConfig, SwAV),
    "dino": Entry("DINO", DINOConfig, DINO),
    "looc": Entry("LooC", LooCConfig, LooC),
    "clsa": Entry("CLSA", CLSAConfig, CLSA),
    "infomin": Entry("InfoMin", InfoMinConfig, InfoMin),
    "obow": Entry("OBoW", OBoWConfig, OBoW),
    "mae": Entry("MAE", MAEConfig, MAE),
    "prcl": Entry("PrCL", PrCLConfig, PrCL),
    "supervised": Entry("supervised", SupervisedConfig, Supervised),
}


def method_of(config: MethodConfig) -> str:
    """The method that a configuration is of, a key of `METHODS`.

    Raises:
        UserError: It is no method's.
    """
    for name, entry in METHODS.items():
        if type(config) is entry.config:
            return name
    kinds = ", ".join(entry.config.__name__ for entry in METHODS.values())
    raise UserError(f"expected the configuration of a method ({kinds}), got {config!r}")


__all__ = [
    "BYOL",
    "CLSA",
    "DINO",
    "ENCODER",
    "MAE",
    "METHODS",
    "MODES",
    "BYOLConfig",
    "BarlowTwins",
    "BarlowTwinsConfig",
    "CLSAConfig",
    "DINOConfig",
    "Embedding",
    "EncoderAndEmbedding",
    "Ensemble",
    "Entry",
    "HostInputs",
    "Images",
    "InfoMin",
    "InfoMinConfig",
    "LooC",
    "LooCConfig",
    "MAEConfig",
    "Mast",
    "MastConfig",
    "Method",
    "MethodConfig",
    "MoCo",
    "MoCoConfig",
    "MoCoV3",
    "MoCoV3Config",
    "Noise",
    "OBoW",
    "OBoWConfig",
    "PairConfig",
    "Part",
    "PrCL",
    "PrCLConfig",
    "PredictedUncertainty",
    "Prototypes",
    "Queue",
    "SimCLR",
    "SimCLRConfig",
    "SimSiam",
    "SimSiamConfig",
    "Supervised",
    "SupervisedConfig",
    "SwAV",
    "SwAVConfig",
    "Teacher",
    "VICReg",
    "VICRegConfig",
    "VISimSiam",
    "VISimSiamConfig",
    "collapse_checks",
    "method_of",
    "predicts_uncertainty",
    "save_embedding",
]
