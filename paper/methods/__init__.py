"""Methods of the paper that users of a library seldom ask for: a file and a row each."""

from mast.augment import PRESETS
from mast.config import PretrainConfig
from mast.methods import METHODS, MethodEntry
from mast.recipes import RECIPES
from paper.methods import recipes, views
from paper.methods.clsa import CLSA, CLSAConfig
from paper.methods.ifm import IFM, IFMConfig
from paper.methods.infomin import InfoMin, InfoMinConfig
from paper.methods.looc import LooC, LooCConfig
from paper.methods.moco_v3 import MoCoV3, MoCoV3Config
from paper.methods.obow import OBoW, OBoWConfig
from paper.methods.prcl import PrCL, PrCLConfig
from paper.methods.vi_simsiam import VISimSiam, VISimSiamConfig

BASELINES = {
    "moco_v3": MethodEntry("MoCo v3", MoCoV3Config, MoCoV3),
    "ifm": MethodEntry("IFM-MoCo v2", IFMConfig, IFM),
    "vi_simsiam": MethodEntry("VI-SimSiam", VISimSiamConfig, VISimSiam),
    "looc": MethodEntry("LooC", LooCConfig, LooC),
    "clsa": MethodEntry("CLSA", CLSAConfig, CLSA),
    "infomin": MethodEntry("InfoMin", InfoMinConfig, InfoMin),
    "obow": MethodEntry("OBoW", OBoWConfig, OBoW),
    "prcl": MethodEntry("PrCL", PrCLConfig, PrCL),
}


def recipe(name: str) -> PretrainConfig:
    """The configuration of a recipe, of these methods before they are registered, too."""
    return (recipes.RECIPES | RECIPES)[name]()


def register() -> None:
    """Add them, their recipes and views to those of `mast pretrain`."""
    METHODS.update(BASELINES)
    RECIPES.update(recipes.RECIPES)
    PRESETS.update(views.PRESETS)
