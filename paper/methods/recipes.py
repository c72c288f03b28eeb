"""Recipes of the paper's variants and methods, at ImageNet's scale and for small images.

Costs are estimated as for mast5. Each takes encoder, batch and optimizer of vicreg5, of MoCo v2 or
of SimSiam where it does not name its own.
"""

from dataclasses import replace
from typing import Any

from mast.config import PretrainConfig
from mast.methods import MastConfig
from mast.models import MLPConfig
from mast.recipes import Recipe
from mast.recipes.mast import imagenet, mast5, vicreg5
from mast.recipes.others import SGD, byol, moco_v2, simsiam
from mast.recipes.small import small
from paper.methods.clsa import CLSAConfig
from paper.methods.ifm import IFMConfig
from paper.methods.infomin import InfoMinConfig
from paper.methods.looc import LooCConfig
from paper.methods.moco_v3 import MoCoV3Config
from paper.methods.obow import OBoWConfig
from paper.methods.prcl import PrCLConfig
from paper.methods.vi_simsiam import VISimSiamConfig
from paper.methods.views import PRESETS


def mast19() -> PretrainConfig:
    """MAST-19 on ImageNet: as mast5, with 19 operators.

    Paper: linear top-1 75.8 (Table 5, row 3).
    """
    return replace(mast5(), recipe="mast19", views="mast19")


def mast5_handcrafted() -> PretrainConfig:
    """MAST-5 with fixed disjoint masks instead of learned ones.

    Disjoint masks have no intersection, so the distances of the subspaces are added (Eq. 4).
    Paper: linear top-1 74.3 (Table 5, row 7).
    """
    return replace(mast5(), recipe="mast5_handcrafted", objective=MastConfig(masks="handcrafted"))


def mast5_no_uncertainty() -> PretrainConfig:
    """MAST-5 without the predicted covariance.

    Paper: linear top-1 74.1 (Table 5, row 8).
    """
    return replace(mast5(), recipe="mast5_no_uncertainty", objective=MastConfig(uncertainty=False))


def mast5_uncertainty_only() -> PretrainConfig:
    """MAST-5 without masks: one distance, divided by the predicted covariance.

    Paper: Flowers-17 26.5, Cars 16.4 with ResNet-18 and 100 epochs (Table 6).
    """
    return replace(mast5(), recipe="mast5_uncertainty_only", objective=MastConfig(masks="none"))


def vicreg15() -> PretrainConfig:
    """VICReg with 15 operators, all from the start: richer augmentation without subspaces.

    Paper: linear top-1 73.1 (Table 5, row 2).
    """
    return replace(vicreg5(), recipe="vicreg15", views="mast15")


def moco_v3() -> PretrainConfig:
    """MoCo v3 on ImageNet: ResNet-50, batch 4096, 1000 epochs, in its own views.

    Its official code: linear top-1 74.6. LARS at 0.3 for 256 images, weight decay 1.5e-6,
    temperature 1, momentum from 0.996 (facebookresearch/moco-v3).

    Cost: some 100 GPU hours.
    """
    objective = MoCoV3Config(momentum=0.996)
    optimizer = replace(byol().optimizer, lr=0.3)
    return imagenet("moco_v3", objective, optimizer, views="moco_v3", batch_size=4096)


def ifm_moco_v2() -> PretrainConfig:
    """MoCo v2 with implicit feature modification, on ImageNet-100: 200 epochs, batch 512.

    Robinson et al., NeurIPS 2021: linear top-1 81.4 on ImageNet-100. SGD at 0.4 for 256 images,
    epsilon 0.1, both losses of one weight (joshr17/IFM).
    """
    objective, optimizer = IFMConfig(momentum=0.99, hardness=0.1), replace(SGD, lr=0.4)
    return imagenet("ifm_moco_v2", objective, optimizer, views="moco", epochs=200, batch_size=512)


def prcl() -> PretrainConfig:
    """MoCo v2 that also predicts hidden pixels, on ImageNet: ResNet-50, batch 256, 800 epochs.

    Li et al., Addressing Feature Suppression in Unsupervised Visual Representations, 2020: linear
    top-1 71.0, as the paper of MAST prints it (Table 1). No code was found: what is hidden, how it
    is predicted and the weight of both terms are chosen here, all else is MoCo v2's.

    Cost: some 70 GPU hours, as every query is seen twice.
    """
    return replace(moco_v2(), recipe="prcl", objective=PrCLConfig())


def infomin() -> PretrainConfig:
    """InfoMin on ImageNet: MoCo v2 in its views, with a jigsaw; ResNet-50, batch 256, 800 epochs.

    Tian et al., What Makes for Good Views for Contrastive Learning, NeurIPS 2020: linear top-1 73.0
    (70.1 after 200 epochs). Temperature 0.15, all else as MoCo v2 (HobbitLong/PyContrast). What
    differs in the views is noted at the preset `infomin` (`paper/methods/views.py`).

    Cost: some 60 GPU hours.
    """
    return replace(moco_v2(), recipe="infomin", views="infomin", objective=InfoMinConfig())


def vi_simsiam() -> PretrainConfig:
    """VI-SimSiam with SimSiam's hyperparameters, as its own are not known.

    MAST's paper: linear top-1 19.7 on Flowers-17, where SimSiam has 24.6 (Table 6).
    """
    return replace(simsiam(), recipe="vi_simsiam", objective=VISimSiamConfig())


def looc() -> PretrainConfig:
    """LooC: MoCo v2 with heads that preserve color and orientation, 200 epochs.

    Its paper trains on ImageNet-100 and keeps color, rotation and texture; there is no official
    code. The views are those of MAST-5, two of which share what is preserved. The query is encoded
    with a gradient, three keys without one.

    Cost: some 15 GPU hours.
    """
    return replace(moco_v2(), recipe="looc", views="looc", objective=LooCConfig(), epochs=200)


def clsa() -> PretrainConfig:
    """CLSA on ImageNet: ResNet-50, batch 256, 800 epochs, two weak views and a strong one.

    Its paper, with one strong view: linear top-1 72.2 (69.4 after 200 epochs). As MoCo v2, with
    both terms of one weight and a strong view of 96 pixels (maple-research-lab/CLSA, "single
    crop"). Its results with five strong views (73.3 after 200 epochs, 76.2 after 800) are of
    another recipe. What differs in the strong view is noted at the preset `clsa`
    (`paper/methods/views.py`).

    Cost: some 45 GPU hours.
    """
    return replace(moco_v2(), recipe="clsa", views="clsa", objective=CLSAConfig())


def obow() -> PretrainConfig:
    """OBoW on ImageNet: ResNet-50, batch 256, 200 epochs, words of the last block alone.

    Its paper: linear top-1 73.8, with words of blocks 3 and 4. The teacher sees the image, the
    student two crops of 160 pixels and five of 96. SGD at 0.03 with a warm-up of 10 epochs, weight
    decay 1e-4, 8192 words, momentum from 0.99 (valeoai/obow, ResNet50_OBoW_full). The
    weight decay acts on biases and norms, too. What differs in the views is noted at
    the preset `obow` (`paper/methods/views.py`).

    Cost: some 18 GPU hours.
    """
    optimizer = replace(SGD, lr=0.03, warmup=10, final=0.001)
    return imagenet("obow", OBoWConfig(), optimizer, views="obow", epochs=200, batch_size=256)


def _small_recipe(full: Recipe) -> Recipe:
    def recipe() -> PretrainConfig:
        config = small(full())
        views = f"{config.views}_small"  # instead of views that have a size of their own
        return replace(
            config,
            objective=_small_objective(config.objective),
            views=views if views in PRESETS else config.views,
        )

    recipe.__doc__ = f"{full.__name__} for small images and budgets."
    return recipe


def _small_objective(objective: Any) -> Any:
    """With sizes for small batches and short runs."""
    match objective:
        case LooCConfig() | CLSAConfig() | InfoMinConfig():
            sizes = MLPConfig(hidden=512, dim=128)
            return replace(objective, projector=sizes, queue=4096, momentum=0.99)
        case MoCoV3Config():
            return replace(objective, projector=MLPConfig(hidden=1024, dim=256), momentum=0.99)
        case OBoWConfig():  # sharpness and scale as officially for a ResNet-18
            return replace(objective, words=1024, sharpness=10.0, scale=5.0)
    return objective


FULL: dict[str, Recipe] = {
    "mast19": mast19,
    "mast5_handcrafted": mast5_handcrafted,
    "mast5_no_uncertainty": mast5_no_uncertainty,
    "mast5_uncertainty_only": mast5_uncertainty_only,
    "vicreg15": vicreg15,
    "moco_v3": moco_v3,
    "ifm_moco_v2": ifm_moco_v2,
    "infomin": infomin,
    "vi_simsiam": vi_simsiam,
    "looc": looc,
    "clsa": clsa,
    "obow": obow,
    "prcl": prcl,
}
RECIPES = FULL | {f"{name}_small": _small_recipe(full) for name, full in FULL.items()}
