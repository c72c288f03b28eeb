"""Recipes of CLSA, at ImageNet's scale."""

from dataclasses import replace

from mast.config import PretrainConfig
from mast.methods import CLSAConfig
from mast.recipes.moco import moco_v2


def clsa() -> PretrainConfig:
    """CLSA on ImageNet: ResNet-50, batch 256, 800 epochs, two weak views and a strong one.

    Its paper, with one strong view: linear top-1 72.2 (69.4 after 200 epochs). As MoCo v2, with
    both terms of one weight and a strong view of 96 pixels (maple-research-lab/CLSA, "single
    crop"). Its results with five strong views (73.3 after 200 epochs, 76.2 after 800) are of
    another recipe. What differs in the strong view stands beside the preset `clsa`
    (`mast/augment/presets.py`).

    Cost, estimated as for mast5: some 45 GPU hours.
    """
    return replace(moco_v2(), recipe="clsa", views="clsa", objective=CLSAConfig())
