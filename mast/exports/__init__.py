"""Encoders and classifiers as folders that load without this library.

Each format is one class and one row of `FORMATS`.
"""

from mast.core.registry import Entry
from mast.exports.format import Format
from mast.exports.graphs import Onnx, Program
from mast.exports.libraries import Timm

FORMATS: dict[str, Entry[Format]] = {
    "timm": Entry("timm or transformers' AutoModels: any encoder that timm builds unchanged", Timm),
    "pt2": Entry("torch.export: any encoder or classifier, normalized inside", Program),
    "onnx": Entry("ONNX Runtime: any encoder or classifier, normalized inside", Onnx),
}
