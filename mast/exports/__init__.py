"""Encoders and classifiers as folders that load without this library.

Each format is one class and one row of `FORMATS`.
"""

from mast.core.registry import Entry as Entry
from mast.exports.card import card as card
from mast.exports.folder import Exported as Exported
from mast.exports.folder import export_folder as export_folder
from mast.exports.folder import files_to_replace as files_to_replace
from mast.exports.format import ANY as ANY
from mast.exports.format import Format as Format
from mast.exports.graphs import ExportedGraph as ExportedGraph
from mast.exports.graphs import Onnx, Program
from mast.exports.libraries import Timm
from mast.exports.original import Original as Original
from mast.exports.original import load_original as load_original

FORMATS: dict[str, Entry[Format]] = {
    "timm": Entry("timm or transformers' AutoModels: any encoder that timm builds unchanged", Timm),
    "pt2": Entry("torch.export: any encoder or classifier, normalized inside", Program),
    "onnx": Entry("ONNX Runtime: any encoder or classifier, normalized inside", Onnx),
}
