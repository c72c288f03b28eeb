"""Search, clean, classify images with any encoder; pretrain one on your own images.

config = mast.configure("mast_c5_small", data="photos", epochs=50)
run = mast.pretrain(config)
encoder = mast.load_encoder(run.path)   # images (B, 3, H, W) in [0, 1] -> (B, D)

Public names are imported on first use, so that `mast --help` needs no PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mast.core.errors import UserError as UserError

if TYPE_CHECKING:
    from mast.commands.adapt import adapt as adapt
    from mast.commands.analyze import analyze as analyze
    from mast.commands.analyze import draw as draw
    from mast.commands.browse import browse as browse
    from mast.commands.compare import compare as compare
    from mast.commands.demo import demo as demo
    from mast.commands.duplicates import duplicates as duplicates
    from mast.commands.embed import embed as embed
    from mast.commands.evaluate import evaluate as evaluate
    from mast.commands.export import export as export
    from mast.commands.fit import fit as fit
    from mast.commands.neighbours import neighbours as neighbours
    from mast.commands.outliers import outliers as outliers
    from mast.commands.plan import plan as plan
    from mast.commands.predict import predict as predict
    from mast.commands.pretrain import pretrain as pretrain
    from mast.commands.report import report as report
    from mast.commands.show import show_config as show_config
    from mast.commands.show import show_operators as show_operators
    from mast.commands.show import show_recipes as show_recipes
    from mast.commands.show import show_views as show_views
    from mast.config import PretrainConfig as PretrainConfig
    from mast.encoders.extract import open_images as open_images
    from mast.evaluation.named_sets import NamedSets as NamedSets
    from mast.invariance.adapted import load_adapted as load_adapted
    from mast.invariance.encoder import Encoder as Encoder
    from mast.invariance.transformer import Invariance as Invariance
    from mast.models import load_classifier as load_classifier
    from mast.models import load_encoder as load_encoder
    from mast.recipes import configure as configure
    from mast.runs.load import load_embedding as load_embedding
    from mast.runs.load import load_method as load_method
    from mast.views import ViewMaker as ViewMaker

    __version__: str

_COMMANDS = (
    "adapt", "analyze", "browse", "compare", "demo", "duplicates", "embed", "evaluate", "export",
    "fit", "neighbours", "outliers", "plan", "predict", "pretrain", "report",
)  # fmt: skip
PUBLIC = {
    **{name: f"mast.commands.{name}" for name in _COMMANDS},
    "Encoder": "mast.invariance.encoder",
    "Invariance": "mast.invariance.transformer",
    "NamedSets": "mast.evaluation.named_sets",
    "PretrainConfig": "mast.config",
    "UserError": "mast.core.errors",
    "ViewMaker": "mast.views",
    "configure": "mast.recipes",
    "draw": "mast.commands.analyze",
    "load_adapted": "mast.invariance.adapted",
    "load_classifier": "mast.models",
    "load_embedding": "mast.runs.load",
    "load_encoder": "mast.models",
    "load_method": "mast.runs.load",
    "open_images": "mast.encoders.extract",
    "show_config": "mast.commands.show",
    "show_operators": "mast.commands.show",
    "show_recipes": "mast.commands.show",
    "show_views": "mast.commands.show",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("mast-ssl")
    if name not in PUBLIC:
        raise AttributeError(f"module 'mast' has no attribute {name!r}")
    return getattr(import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*PUBLIC, "__version__"])
