"""MAST: self-supervised pretraining of image encoders in masked augmentation subspaces.

config = mast.configure("mast5_small", data="photos", epochs=50)
run = mast.pretrain(config)
encoder = mast.load_encoder(run.path)   # images (B, 3, H, W) in [0, 1] -> (B, D)
"""

from mast.commands.advise import advise
from mast.commands.analyze import analyze, draw
from mast.commands.compare import compare
from mast.commands.demo import demo
from mast.commands.embed import embed
from mast.commands.evaluate import evaluate
from mast.commands.export import export
from mast.commands.pretrain import pretrain
from mast.commands.report import report
from mast.commands.show import show_config, show_operators, show_recipes, show_views
from mast.commands.study import study
from mast.commands.uncertain import uncertain
from mast.config import PretrainConfig
from mast.measure.named_sets import NamedSets
from mast.models import load_encoder
from mast.recipes import configure
from mast.runs.load import load_method

__all__ = [
    "NamedSets",
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
