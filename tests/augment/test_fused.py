"""Triton's kernels against the PyTorch kernels that say what they compute.

On a GPU where there is one; otherwise in Triton's interpreter (`conftest.py`).
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_compiled import POINTWISE, STEPPED, TOLERANCE, Dim, canvases
from test_layouts import noise, packed
from torch import Tensor

from mast.augment import OPERATORS, PRESETS, Pipeline, Preset, View, operators_for
from mast.augment.operator import Record
from mast.augment.operators.filters import GaussianBlur
from mast.augment.warp import Warp
from mast.core.canvases import Canvases
from mast.core.reading import Layout

pytest.importorskip("triton")
from mast.augment.fused import chain

pytestmark = pytest.mark.slow

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FUSED = [name for name in POINTWISE if name in operators_for(3)]
SIZE = 24
# At 24 pixels the usual blur does nothing.
BLUR = GaussianBlur(SIZE, sigma=(2.0, 16.0), extent=0.4)


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time for a program, whatever the number of pixels."""
    monkeypatch.setattr(chain, "BLOCK", 1024)


def whole(count: int) -> Warp:
    """Views that show the whole of a square image."""
    every = torch.ones(count, dtype=torch.bool)
    return Warp(torch.eye(3).repeat(count, 1, 1), torch.ones(count, 2), every, ~every)


def share_that_differs(
    preset: Preset, size: int, images: Canvases, seed: int, monkeypatch: pytest.MonkeyPatch
) -> float:
    """Of the values of views by Triton's kernels, those that are not the reference's."""
    pipeline, reference = fused(preset, size, monkeypatch), Pipeline(preset, size, compiled=False)
    records = reference.draw(len(images), torch.Generator().manual_seed(seed))
    expected = reference.views(images, records).images
    actual = pipeline.views(images.to(DEVICE), records).images
    return max(
        ((first - second.cpu()).abs() > TOLERANCE).float().mean().item()
        for first, second in zip(expected, actual, strict=True)
    )


def fused(preset: Preset, size: int, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline that draws by Triton's kernels, on the CPU too."""
    monkeypatch.setattr("mast.augment.pipeline.is_fused", lambda device: True)
    return Pipeline(preset, size)


@pytest.mark.parametrize("name", FUSED)
def test_a_kernel_equals_its_reference(name: str) -> None:
    operator = BLUR if name == "gaussian_blur" else OPERATORS[name](SIZE)
    canvas = canvases(6, SIZE)
    images = canvas.permute(0, 3, 1, 2) * (1 / 255)
    parameters = operator.sample(6, torch.Generator().manual_seed(0))
    index = torch.tensor([0, 2, 3, 5])
    own = {key: values[index] for key, values in parameters.items()}
    expected = images.clone()
    expected[index] = operator.apply(images[index], own)
    assert not torch.equal(expected, images)
    applied_BK = torch.zeros(6, 1, dtype=torch.bool).index_fill_(0, index, True)
    actual = torch.full((6, 3, SIZE, SIZE), torch.nan, device=DEVICE)
    record = Record((name,), applied_BK, {name: parameters})
    chain.draw_views([operator], Canvases.of(canvas.to(DEVICE)), whole(6), record, actual)
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=TOLERANCE)
    # those that did not draw it
    torch.testing.assert_close(actual.cpu()[[1, 4]], images[[1, 4]], rtol=0, atol=1e-6)


def test_as_few_passes_as_the_order_allows() -> None:
    tone, blur, sharpen, correlate = chain.TONE, chain.BLUR, chain.SHARPEN, chain.CORRELATE
    grain, edges, finish = chain.GRAIN, chain.EDGES, chain.FINISH
    for name, expected in {
        "mast5": [tone, blur, finish],
        "vicreg": [tone, blur, finish],
        "mast15": [tone, blur, sharpen, grain, edges, finish],
        "mast19": [tone, chain.EQUALIZE, blur, sharpen, correlate, grain, edges, finish],
        "mae": [finish],
    }.items():
        passes = chain.passes_of(Pipeline(PRESETS[name], SIZE)._pointwise[0])
        assert [each for each, _ in passes] == expected


def views_of(name: str) -> Preset:
    """Three views of a preset, the small ones smaller still."""
    preset = PRESETS[name]
    return Preset(
        preset.operators,
        tuple(View(view.overrides, view.size and 16) for view in preset.views[:3]),
    )


SMOOTH = tuple(name for name in PRESETS["mast19"].operators if name not in STEPPED)
FEW = ("color_jitter", "sharpness", "dim", "sobel", "cutout")  # one has no kernel here


@pytest.mark.parametrize(
    ("preset", "size", "side", "block", "most"),
    [
        (lambda: Preset(SMOOTH), 8, 5, 64, 0),
        (lambda: Preset(SMOOTH), 33, 32, 512, 0),
        (lambda: views_of("dino"), SIZE, 40, 1024, 2e-3),  # cubics of several sizes
        (lambda: views_of("mast19"), SIZE, 40, 1024, 2e-3),  # a value may cross a threshold
        (lambda: Preset(FEW, (View(),)), SIZE, 32, 1024, 0),
    ],
)
def test_views_equal_the_reference(
    preset: Callable[[], Preset], size: int, side: int, block: int, most: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(chain, "BLOCK", block)
    monkeypatch.setitem(OPERATORS, "dim", Dim)
    images = Canvases.of(canvases(6, side), torch.linspace(0.5, 2.0, 6))
    assert share_that_differs(preset(), size, images, 1, monkeypatch) <= most


@pytest.mark.parametrize("layout", [Layout(3, deep=True), Layout(4)])
def test_views_of_other_channels_and_depths(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = PRESETS["mast5"].of_channels(layout.channels)
    images = packed(noise(layout.channels), layout)
    assert share_that_differs(preset, SIZE, images, 0, monkeypatch) == 0


def test_views_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter cuts what a GPU rounds."""
    pipeline = fused(PRESETS["mast5"], SIZE, monkeypatch)
    shown = Canvases.of(canvases(4, 32).to(DEVICE))
    records = pipeline.draw(4, torch.Generator().manual_seed(0))
    single, half = (
        pipeline.views(shown, records, pipeline.buffer(4, DEVICE, dtype)).images[1]
        for dtype in (torch.float32, torch.bfloat16)
    )
    if DEVICE.type == "cuda":
        assert torch.equal(half, single.bfloat16())
    torch.testing.assert_close(half.float(), single, rtol=2**-7, atol=0)


def test_nothing_is_read_that_was_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory holds anything; here NaN."""
    empty = torch.empty

    def filled(*args: object, **kwargs: object) -> Tensor:
        memory: Tensor = empty(*args, **kwargs)  # type: ignore[call-overload]
        return memory.fill_(torch.nan) if memory.is_floating_point() else memory

    pipeline = fused(PRESETS["mast19"], SIZE, monkeypatch)
    records = pipeline.draw(3, torch.Generator().manual_seed(0))
    batch = Canvases.of(canvases(3, 32).to(DEVICE)), records
    expected = pipeline.views(*batch).images
    monkeypatch.setattr(torch, "empty", filled)
    for first, second in zip(expected, pipeline.views(*batch).images, strict=True):
        assert torch.equal(first, second)


def test_where_triton_cannot_build_a_kernel(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def launch(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler")

    assert chain.works_on.__wrapped__(DEVICE)
    assert not caplog.messages
    monkeypatch.setattr(chain, "launch", launch)
    assert not chain.works_on.__wrapped__(DEVICE)
    assert "drawn by PyTorch's kernels" in caplog.text
    assert "find C compiler" in caplog.text


def test_what_a_gpu_runs() -> None:
    """In a process of its own, as it is when Triton is imported that the interpreter is chosen."""
    code = (
        "import json, fused; "
        "print(json.dumps({'mast15': fused.counted('mast15', 512), 'sm_90': fused.compiled(90)}))"
    )
    benchmarks = Path(__file__).parents[2] / "benchmarks"
    path = os.pathsep.join([str(benchmarks), os.environ.get("PYTHONPATH", "")])
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = json.loads(printed)
    before, after = found["mast15"]["PyTorch"], found["mast15"]["Triton"]
    assert (after["copies"], after["waits"]) == (1, 0)
    assert after["launches"] <= 12 < before["launches"]
    assert after["GB"] <= before["GB"] / 15
    for kernel, of in found["sm_90"].items():
        assert of["stack"] == 0, kernel  # nothing is spilled
        assert of["registers"] <= 72, kernel  # seven in sixteen of the threads that it could hold
        assert of["shared"] <= 8192, kernel
