"""Encoders and classifiers as folders that load without this library.

Each format is one class and one line of `FORMATS`.
"""

from mast.core.registry import Entry
from mast.exports.card import card
from mast.exports.folder import (
    Exported,
    check_repository,
    export_folder,
    push_folder,
    refuse_something_else,
)
from mast.exports.format import ANY, Format, Place
from mast.exports.graphs import ExportedGraph, Onnx, Program
from mast.exports.libraries import HuggingFace, Timm, Torchvision
from mast.exports.original import Original, load_original

FORMATS: dict[str, Entry[Format]] = {
    "timm": Entry("timm.create_model, for what timm builds by itself", Timm),
    "hf": Entry("transformers' AutoModels, for the same", HuggingFace),
    "torchvision": Entry("a state dict and the line that builds its model", Torchvision),
    "pt2": Entry("torch.export: any encoder or classifier, normalised inside", Program),
    "onnx": Entry("ONNX Runtime: any encoder or classifier, normalised inside", Onnx),
}

__all__ = [
    "ANY",
    "FORMATS",
    "Entry",
    "Exported",
    "ExportedGraph",
    "Format",
    "Original",
    "Place",
    "card",
    "check_repository",
    "export_folder",
    "load_original",
    "push_folder",
    "refuse_something_else",
]
