"""The compiled kernels against the PyTorch kernels that say what they compute."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import mast
from mast.augment import OPERATORS, PRESETS, Operator, Pipeline, Preset, Stage, View
from mast.augment.operator import operator, per_pixel, uniform
from mast.augment.operators.geometry import GeometricOperator
from mast.core.canvases import Canvases
from mast.data.generated import Factors

TOLERANCE = 1e-4  # a fortieth of an 8-bit level; the Gaussian is cut at four sigmas
POINTWISE = [name for name, kind in OPERATORS.items() if not issubclass(kind, GeometricOperator)]
# A value within rounding of a threshold may fall on its other side.
STEPPED = {"solarize", "posterize", "equalize"}


def canvases(count: int, side: int) -> torch.Tensor:
    source = Factors("train", count, side)
    return torch.from_numpy(np.stack([np.asarray(source.open(i)) for i in range(count)]))


@pytest.mark.parametrize(
    ("name", "size"),
    # at 224 the blurs reach furthest
    [(name, 57) for name in POINTWISE] + [("gaussian_blur", 224), ("motion_blur", 224)],
)
def test_a_kernel_equals_its_reference(name, size):
    tested = OPERATORS[name](size)
    images = canvases(6, size).permute(0, 3, 1, 2).contiguous() / 255
    parameters = tested.sample(6, torch.Generator().manual_seed(0))
    applied_B = torch.tensor([True, False, True, True, False, True])
    expected = images.clone()
    own = {key: values[applied_B] for key, values in parameters.items()}
    expected[applied_B] = tested.apply(images[applied_B], own)
    assert not torch.equal(expected, images)
    actual = images.clone()
    step = tested.compiled(applied_B, parameters)
    for some in (slice(0, 2), slice(2, 6)):
        step(actual[some].numpy(), some)
    different = (actual - expected).abs() > TOLERANCE
    assert different.float().mean() <= (1e-3 if name in STEPPED else 0)
    assert torch.equal(actual[[1, 4]], images[[1, 4]])  # those that did not draw it


def invert(images_BCHW, factor_B):  # not the operator of that name
    return images_BCHW * per_pixel(factor_B, images_BCHW)


@operator("dim", "color", Stage.COLOR, invert)
class Dim(Operator):
    """An operator that has no compiled kernel."""

    def sample(self, n, generator):
        return {"factor": uniform(n, (0.2, 0.8), generator)}


def test_an_operator_without_a_kernel_is_applied_all_the_same(monkeypatch):
    monkeypatch.setitem(OPERATORS, "dim", Dim)
    monkeypatch.setattr("mast.augment.pipeline.COMPILED_PART_VALUES", 7 * 3 * 24**2)
    preset, images = Preset(("random_resized_crop", "dim", "invert"), (View(),)), canvases(40, 32)
    records = Pipeline(preset, 24).draw(40, torch.Generator().manual_seed(0))
    assert 0 < records[0].applied("dim").sum() < 40
    dimmed, expected = (
        Pipeline(preset, 24, compiled).views(Canvases.of(images), records).images[0]
        for compiled in (True, False)
    )
    torch.testing.assert_close(dimmed, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("side", "size"), [(2, 16), (40, 64), (256, 112)])
def test_views_equal_the_reference(side, size):
    names = [name for name in PRESETS["mast19"].operators if name not in STEPPED]
    preset = Preset(tuple(names))
    reference = Pipeline(preset, size, compiled=False)
    compiled = Pipeline(preset, size, compiled=True)
    count = 20
    chosen = torch.rand(count, len(names), generator=torch.Generator().manual_seed(1)) < 0.6
    records = reference.draw(count, torch.Generator().manual_seed(0), chosen)
    canvas, aspect = canvases(count, side), torch.linspace(0.5, 2.0, count)
    expected = reference.views(Canvases.of(canvas, aspect), records).images
    actual = compiled.views(Canvases.of(canvas, aspect), records).images
    for first, second in zip(expected, actual, strict=True):
        # A view pixel on the very border of the image may fall on its other side, and a filter
        # spreads what it then shows.
        different_B = ((first - second).abs() > TOLERANCE).amax(dim=1).sum(dim=(1, 2))
        assert different_B.max() <= 9
        assert (different_B > 0).float().mean() < 0.1


@pytest.mark.slow
def test_uninitialised_memory_never_shows():
    # The C library fills what it hands out with one byte, and no output may depend on it.
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import test_compiled; "
        "test_compiled.test_views_equal_the_reference(40, 64)"
    )
    environment = {**os.environ, "MALLOC_PERTURB_": "90"}
    subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)], env=environment, check=True
    )


@pytest.mark.slow
def test_kernels_just_compiled_equal_those_on_disk(tmp_path):
    code = """
import hashlib, torch
from mast.augment import PRESETS, Pipeline
from mast.core.canvases import Canvases
random = torch.Generator().manual_seed(0)
images = torch.randint(256, (32, 40, 48, 3), generator=random, dtype=torch.uint8)
pipeline = Pipeline(PRESETS["mast15"], 32, compiled=True)
views = pipeline.views(Canvases.of(images), pipeline.draw(32, random)).images
print(*(hashlib.sha256(view.numpy().tobytes()).hexdigest() for view in views))
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (
        subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE
        ).stdout
        for _ in range(2)
    )
    assert first == second


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
    with pytest.raises(ValueError, match=rf"of shape \({8 * 3 * 24 * 24},\)"):
        pipeline.views(batch[:4], tuple(record[:4] for record in records), out=buffer)
    scattered = pipeline.buffer(10, torch.device("cpu"))[::2]
    with pytest.raises(ValueError, match="contiguous"):
        pipeline.views(batch, records, out=scattered)


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
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE)
