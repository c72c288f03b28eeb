"""MAST: self-supervised pretraining of image encoders in masked augmentation subspaces.

config = mast.configure("mast5_small", data="photos", epochs=50)
run = mast.pretrain(config)
encoder = mast.load_encoder(run.path)   # images (B, 3, H, W) in [0, 1] -> (B, D)
"""

from mast.advice import advise
from mast.demo import demo
from mast.export import export
from mast.insight import analyze, draw
from mast.loading import load_method
from mast.models import load_encoder
from mast.pretrain import PretrainConfig, pretrain
from mast.recipes import configure
from mast.report import report
from mast.show import show_config, show_operators, show_recipes, show_views
from mast.study import study
from mast.transfer import compare, embed, evaluate
from mast.uncertain import uncertain

__all__ = [
    "PretrainConfig",
    "advise",
    "analyze",
    "compare",
    "configure",
    "demo",
    "draw",
    "embed",
    "evaluate",
    "export",
    "load_encoder",
    "load_method",
    "pretrain",
    "report",
    "show_config",
    "show_operators",
    "show_recipes",
    "show_views",
    "study",
    "uncertain",
]
