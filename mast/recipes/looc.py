"""Recipes of LooC, at ImageNet's scale."""

from dataclasses import replace

from mast.config import PretrainConfig
from mast.methods import LooCConfig
from mast.recipes.moco import moco_v2


def looc() -> PretrainConfig:
    """LooC as MoCo v2, with heads that keep colour and orientation, 200 epochs.

    Its paper trains on ImageNet-100 and keeps colour, rotation and texture; there is no official
    code. The views are those of MAST-5, two of which share what is kept. The query is encoded with
    a gradient, three keys without one.

    Cost, estimated as for mast5: some 15 GPU hours.
    """
    return replace(moco_v2(), recipe="looc", views="looc", objective=LooCConfig(), epochs=200)
