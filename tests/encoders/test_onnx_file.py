"""Encoders in `.onnx` files."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mast
from mast.core.errors import UserError
from mast.encoders.load import load


def write_graph(file: Path, shape: list[int | str], kind: int) -> Path:
    """Twice the mean over the two axes of pixels, in [0, 1]: three features."""
    axes = [1, 2] if kind == TensorProto.UINT8 else [2, 3]
    factor = 2 / 255 if kind == TensorProto.UINT8 else 2.0
    nodes = [
        helper.make_node("Cast", ["images"], ["values"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["values"], ["means"], axes=axes, keepdims=0),
        helper.make_node("Mul", ["means", "factor"], ["features"]),
    ]
    graph = helper.make_graph(
        nodes,
        "means",
        [helper.make_tensor_value_info("images", kind, shape)],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [shape[0], 3])],
        [helper.make_tensor("factor", TensorProto.FLOAT, [], [factor])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), file)
    return file


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        (["batch", 3, "height", "width"], TensorProto.FLOAT),
        ([1, 3, 24, 24], TensorProto.FLOAT),
        (["batch", "height", "width", 3], TensorProto.UINT8),
    ],
)
def test_a_graph_is_an_encoder(
    shape: list[int | str], kind: int, photos: Path, tmp_path: Path
) -> None:
    file = write_graph(tmp_path / "means.onnx", shape, kind)
    encoder = mast.Encoder(file, size=24)
    files = sorted(photos.rglob("*.jpg"))[:5]
    images_BCHW = mast.open_images(files, 24)
    wanted_BD = 2 * images_BCHW.mean(dim=(2, 3))
    np.testing.assert_allclose(encoder.encode(files), wanted_BD, atol=4e-3)
    assert load(file).size == (24 if 24 in shape else 224)


def test_what_is_no_graph_of_rgb_images_is_refused(tmp_path: Path) -> None:
    gray = write_graph(tmp_path / "gray.onnx", ["batch", 1, 24, 24], TensorProto.FLOAT)
    with pytest.raises(UserError, match=r"expected one input of RGB images.*got tensor\(float\)"):
        load(gray)
    text = tmp_path / "text.onnx"
    text.write_text("no graph")
    with pytest.raises(UserError, match="no ONNX file"):
        load(text)
    with pytest.raises(UserError, match="weights: expected none"):
        load(write_graph(tmp_path / "rgb.onnx", [1, 3, 24, 24], TensorProto.FLOAT), weights="file")
