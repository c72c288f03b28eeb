"""Encoders, projectors and masks."""

from mast.models.classifier import (
    Classifier,
    Prediction,
    classifier_file,
    load_classifier,
    read_about,
    save_classifier,
)
from mast.models.depths import Depths, ShallowDepths
from mast.models.encoders import (
    Encoder,
    EncoderConfig,
    Encoding,
    load_encoder,
    save_encoder,
    stem_of,
)
from mast.models.foreign import Foreign, is_foreign, load_foreign
from mast.models.heads import (
    MLP,
    Gaussian,
    GaussianProjector,
    GaussianProjectorConfig,
    GeM,
    MLPConfig,
    ParallelHeads,
    check_sizes,
    pair_head,
)
from mast.models.masks import ExemptBlocks, Masks
from mast.models.patches import ShownPatches, images_of, patches_of, picked, positions
from mast.models.pretrained import (
    BASELINE,
    BASELINE_SIZE,
    architecture_of,
    named_weights,
    near_weights,
    size_of,
    weights_file,
)
from mast.models.selection import SearchSpace, exempt_blocks, relative, selection, space_of_heads
from mast.models.sync_batchnorm import SyncBatchNorm, synchronise_batchnorm

__all__ = [
    "BASELINE",
    "BASELINE_SIZE",
    "MLP",
    "Classifier",
    "Depths",
    "Encoder",
    "EncoderConfig",
    "Encoding",
    "ExemptBlocks",
    "Foreign",
    "Gaussian",
    "GaussianProjector",
    "GaussianProjectorConfig",
    "GeM",
    "MLPConfig",
    "Masks",
    "ParallelHeads",
    "Prediction",
    "SearchSpace",
    "ShallowDepths",
    "ShownPatches",
    "SyncBatchNorm",
    "architecture_of",
    "check_sizes",
    "classifier_file",
    "exempt_blocks",
    "images_of",
    "is_foreign",
    "load_classifier",
    "load_encoder",
    "load_foreign",
    "named_weights",
    "near_weights",
    "pair_head",
    "patches_of",
    "picked",
    "positions",
    "read_about",
    "relative",
    "save_classifier",
    "save_encoder",
    "selection",
    "size_of",
    "space_of_heads",
    "stem_of",
    "synchronise_batchnorm",
    "weights_file",
]
