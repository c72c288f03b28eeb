"""The kernels compiled for CPUs and GPUs, in whole views, against the PyTorch kernels.

Triton's run on a GPU where there is one; otherwise in its interpreter (`conftest.py`).
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from test_layouts import noise, packed
from test_operators import COMPILED, DEVICE
from torch import Tensor

import mast
from mast.augment import OPERATORS, PRESETS, Operator, Pipeline, Preset, Stage, View
from mast.augment.operator import operator, per_pixel, uniform
from mast.core.canvases import Canvases
from mast.core.reading import Layout
from mast.data.generated import Factors

SIZE, CPU = 24, torch.device("cpu")
# A value within rounding of a threshold may fall on its other side.
STEPPED = {"solarize", "posterize", "equalize"}
SMOOTH = tuple(name for name in PRESETS["mast19"].operators if name not in STEPPED)


def canvases(count: int, side: int) -> torch.Tensor:
    source = Factors("train", count, side)
    return torch.from_numpy(np.stack([np.asarray(source.open(i)) for i in range(count)]))


def invert(images_BCHW, factor_B):  # not the operator of that name
    return images_BCHW * per_pixel(factor_B, images_BCHW)


@operator("dim", "color", Stage.COLOR, invert)
class Dim(Operator):
    """An operator that has no compiled kernel."""

    def sample(self, n, generator):
        return {"factor": uniform(n, (0.2, 0.8), generator)}


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Triton's kernels, which draw on the CPU, too; its interpreter takes its time for a program,
    whatever the number of pixels.
    """
    fused: ModuleType = pytest.importorskip("mast.augment.fused.chain")
    monkeypatch.setattr("mast.augment.pipeline.is_fused", lambda device: True)
    monkeypatch.setattr(fused, "BLOCK", 1024)
    return fused


def share_that_differs(
    preset: Preset, size: int, images: Canvases, device: torch.device = CPU
) -> float:
    """Of the values of views by the kernels of a device, those that are not the reference's."""
    pipeline, reference = Pipeline(preset, size), Pipeline(preset, size, compiled=False)
    random = torch.Generator().manual_seed(1)
    chosen_BK = torch.rand(len(images), len(preset.operators), generator=random) < 0.8
    records = reference.draw(len(images), torch.Generator().manual_seed(0), chosen_BK)
    expected = reference.views(images, records).images
    actual = pipeline.views(images.to(device), records).images
    return max(
        ((first - second.cpu()).abs() > COMPILED).float().mean().item()
        for first, second in zip(expected, actual, strict=True)
    )


@pytest.mark.parametrize(("side", "size"), [(2, 16), (40, 64), (256, 224)])
def test_compiled_views_equal_the_reference(side, size):
    images = Canvases.of(canvases(20, side), torch.linspace(0.5, 2.0, 20))
    # A view pixel on the very border of the image may fall on its other side, and a filter spreads
    # what it then shows.
    assert share_that_differs(Preset(SMOOTH), size, images) < 3e-4


def test_an_operator_without_a_kernel_is_applied_all_the_same(monkeypatch):
    monkeypatch.setitem(OPERATORS, "dim", Dim)
    monkeypatch.setattr("mast.augment.pipeline.COMPILED_PART_VALUES", 7 * 3 * SIZE**2)
    preset = Preset(("random_resized_crop", "dim", "invert"), (View(),))
    assert share_that_differs(preset, SIZE, Canvases.of(canvases(40, 32))) == 0


@pytest.mark.slow
def test_uninitialised_memory_never_shows():
    # The C library fills what it hands out with one byte, and no output may depend on it.
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import test_kernels; "
        "test_kernels.test_compiled_views_equal_the_reference(40, 64)"
    )
    environment = {**os.environ, "MALLOC_PERTURB_": "90"}
    subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)], env=environment, check=True
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_an_empty_batch_has_empty_views(compiled):
    pipeline = Pipeline(PRESETS["mast5"], 24, compiled)
    nothing = Canvases.of(torch.empty(0, 8, 8, 3, dtype=torch.uint8))
    views = pipeline.views(nothing, pipeline.draw(0, torch.Generator()))
    assert views.images[1].shape == (0, 3, 24, 24)


def test_autograd_notices_a_buffer_that_it_still_needs():
    pipeline = Pipeline(PRESETS["mast5"], 24)
    canvas, aspect, records = canvases(2, 30), torch.ones(2), pipeline.draw(2, torch.Generator())
    buffer = pipeline.buffer(2, torch.device("cpu"))
    weight = torch.ones((), requires_grad=True)
    batch = Canvases.of(canvas, aspect)
    loss = (pipeline.views(batch, records, out=buffer).images[0] * weight).sum()
    pipeline.views(batch, records, out=buffer)
    with pytest.raises(RuntimeError, match="inplace operation"):
        loss.backward()


def test_a_buffer_changes_nothing():
    pipeline = Pipeline(PRESETS["vicreg"], 24)
    canvas, aspect = canvases(5, 30), torch.ones(5)
    records = pipeline.draw(5, torch.Generator().manual_seed(0))
    buffer = pipeline.buffer(5, torch.device("cpu")).fill_(torch.nan)
    batch = Canvases.of(canvas, aspect)
    new, reused = pipeline.views(batch, records), pipeline.views(batch, records, out=buffer)
    assert reused.images[1].untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr()
    for first, second in zip(new.images, reused.images, strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize(("cache", "kept"), [("{}/cache", True), ("/dev/null/x", False)])
def test_compiled_kernels_are_kept_in_the_users_cache_alone(tmp_path, cache, kept):
    """Beside the package they would stay after it, and hide an editable install."""
    package = shutil.copytree(Path(mast.__file__).parent, tmp_path / "site" / "mast")
    code = "from mast.augment.compiled.rows import mirrored; print(mirrored(-3, 8))"
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": ""}
    environment["XDG_CACHE_HOME"] = cache.format(tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE
    )
    assert run.stdout == b"3\n"
    assert not [*package.rglob("*.nb?")]
    assert bool([*(tmp_path / "cache").rglob("*.nb?")]) == kept


@pytest.mark.parametrize(("side", "size"), [(232, 224), (50, 28)])
def test_how_many_pixels_are_kept_of_a_turned_image_is_the_same_for_all(side, size):
    """A side over its shrink factor rounds to either side of the whole number that it is."""
    canvas = Canvases.of(canvases(8, side))
    preset = Preset(("rotate",), (View({"rotate": {"probability": 1.0}}),))
    reference, compiled = (Pipeline(preset, size, compiled=way) for way in (False, True))
    records = reference.draw(8, torch.Generator().manual_seed(0))
    expected, actual = (of.views(canvas, records).images[0] for of in (reference, compiled))
    torch.testing.assert_close(actual, expected, rtol=0, atol=COMPILED)


# ------------------------------------------------------------------------------------ Triton


@pytest.mark.slow
def test_as_few_passes_as_the_order_allows(chain: ModuleType) -> None:
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
        preset.operators, tuple(View(view.overrides, view.size and 16) for view in preset.views[:3])
    )


FEW = ("color_jitter", "sharpness", "dim", "sobel", "cutout")  # one has no kernel here


@pytest.mark.slow
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
def test_fused_views_equal_the_reference(
    preset: Callable[[], Preset], size: int, side: int, block: int, most: float, chain: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(chain, "BLOCK", block)
    monkeypatch.setitem(OPERATORS, "dim", Dim)
    images = Canvases.of(canvases(6, side), torch.linspace(0.5, 2.0, 6))
    assert share_that_differs(preset(), size, images, DEVICE) <= most


@pytest.mark.slow
@pytest.mark.parametrize("layout", [Layout(3, deep=True), Layout(4)])
def test_fused_views_of_other_channels_and_depths(layout: Layout, chain: ModuleType) -> None:
    preset = PRESETS["mast5"].of_channels(layout.channels)
    images = packed(noise(layout.channels), layout)
    assert share_that_differs(preset, SIZE, images, DEVICE) == 0


@pytest.mark.slow
def test_views_in_bfloat16(chain: ModuleType) -> None:
    """The interpreter cuts what a GPU rounds."""
    pipeline = Pipeline(PRESETS["mast5"], SIZE)
    shown = Canvases.of(canvases(4, 32).to(DEVICE))
    records = pipeline.draw(4, torch.Generator().manual_seed(0))
    single, half = (
        pipeline.views(shown, records, pipeline.buffer(4, DEVICE, dtype)).images[1]
        for dtype in (torch.float32, torch.bfloat16)
    )
    if DEVICE.type == "cuda":
        assert torch.equal(half, single.bfloat16())
    torch.testing.assert_close(half.float(), single, rtol=2**-7, atol=0)


@pytest.mark.slow
def test_nothing_is_read_that_was_not_written(
    chain: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fresh memory holds anything; here NaN."""
    empty = torch.empty

    def filled(*args: object, **kwargs: object) -> Tensor:
        memory: Tensor = empty(*args, **kwargs)  # type: ignore[call-overload]
        return memory.fill_(torch.nan) if memory.is_floating_point() else memory

    pipeline = Pipeline(PRESETS["mast19"], SIZE)
    records = pipeline.draw(3, torch.Generator().manual_seed(0))
    batch = Canvases.of(canvases(3, 32).to(DEVICE)), records
    expected = pipeline.views(*batch).images
    monkeypatch.setattr(torch, "empty", filled)
    for first, second in zip(expected, pipeline.views(*batch).images, strict=True):
        assert torch.equal(first, second)


@pytest.mark.slow
def test_where_triton_cannot_build_a_kernel(
    chain: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def launch(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler")

    assert chain.works_on.__wrapped__(DEVICE)
    assert not caplog.messages
    monkeypatch.setattr(chain, "launch", launch)
    assert not chain.works_on.__wrapped__(DEVICE)
    assert "drawn by PyTorch's kernels" in caplog.text
    assert "find C compiler" in caplog.text


@pytest.mark.slow
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
