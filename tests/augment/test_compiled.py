"""The compiled kernels against the PyTorch kernels that say what they compute."""

import numpy as np
import pytest
import torch
from numba.core.caching import CompileResultCacheImpl

from mast.augment import OPERATORS, PRESETS, Pipeline
from mast.augment.compiled.rows import kernel
from mast.augment.geometry import GeometricOperator
from mast.data.factors import Factors

TOLERANCE = 1e-4  # a fortieth of an 8-bit level; the Gaussian is cut at four sigmas
POINTWISE = [
    name for name, operator in OPERATORS.items() if not issubclass(operator, GeometricOperator)
]
# A value within rounding of a threshold may fall on its other side.
STEPPED = {"solarize", "posterize", "equalize"}


def canvases(count: int, side: int) -> torch.Tensor:
    source = Factors("train", count, side)
    return torch.from_numpy(np.stack([np.asarray(source.open(i)) for i in range(count)]))


@pytest.mark.parametrize("size", [24, 57])
@pytest.mark.parametrize("name", POINTWISE)
def test_a_kernel_equals_its_reference(name, size):
    operator = OPERATORS[name](size)
    images = canvases(6, size).permute(0, 3, 1, 2).contiguous() / 255
    parameters = operator.sample(4, torch.Generator().manual_seed(0))
    index = torch.tensor([0, 2, 3, 5])
    expected = images.clone()
    expected[index] = operator.apply(images[index], parameters)
    assert not torch.equal(expected, images)
    actual = images.clone()
    operator.compiled(index.numpy(), parameters).run(actual.numpy(), 0, len(actual))
    different = (actual - expected).abs() > TOLERANCE
    assert different.float().mean() <= (1e-3 if name in STEPPED else 0)
    assert torch.equal(actual[[1, 4]], images[[1, 4]])  # those that did not draw it


@pytest.mark.parametrize(("side", "size"), [(32, 32), (40, 64), (72, 24), (128, 16)])
def test_views_equal_the_reference(side, size):
    names = [name for name in PRESETS["mast19"].operators if name not in STEPPED]
    preset = type(PRESETS["mast19"])(tuple(names))
    reference = Pipeline(preset, size, compiled=False)
    compiled = Pipeline(preset, size, compiled=True)
    chosen = torch.rand(40, len(names), generator=torch.Generator().manual_seed(1)) < 0.6
    records = reference.draw(40, torch.Generator().manual_seed(0), chosen)
    canvas, aspect = canvases(40, side), torch.linspace(0.5, 2.0, 40)
    expected = reference.views(canvas, aspect, records).images
    actual = compiled.views(canvas, aspect, records).images
    for first, second in zip(expected, actual, strict=True):
        # A view pixel on the very border of the image may fall on its other side.
        assert ((first - second).abs() > TOLERANCE).float().mean() < 1e-3


def test_threads_and_parts_change_nothing():
    pipeline = Pipeline(PRESETS["mast19"], 32, compiled=True)
    canvas, aspect = canvases(30, 40), torch.ones(30)
    records = pipeline.draw(30, torch.Generator().manual_seed(0))
    whole = pipeline.views(canvas, aspect, records).images
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        parted = pipeline.views(canvas, aspect, records).images
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(whole[0], parted[0])
    assert torch.equal(whole[1], parted[1])


def test_uninitialised_memory_never_shows():
    pipeline = Pipeline(PRESETS["mast15"], 48, compiled=True)
    canvas, aspect = canvases(8, 200), torch.ones(8)
    for seed in range(5):
        records = pipeline.draw(8, torch.Generator().manual_seed(seed))
        for images in pipeline.views(canvas, aspect, records).images:
            assert ((images >= 0) & (images <= 1)).all()


def test_a_buffer_changes_nothing():
    pipeline = Pipeline(PRESETS["vicreg"], 24)
    canvas, aspect = canvases(5, 30), torch.ones(5)
    records = pipeline.draw(5, torch.Generator().manual_seed(0))
    buffer = pipeline.buffer(5, torch.device("cpu")).fill_(torch.nan)
    new, reused = (
        pipeline.views(canvas, aspect, records),
        pipeline.views(canvas, aspect, records, out=buffer),
    )
    assert reused.images[1].untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr()
    for first, second in zip(new.images, reused.images, strict=True):
        assert torch.equal(first, second)
    with pytest.raises(ValueError, match=r"out of shape \(8, 3, 24, 24\)"):
        pipeline.views(canvas[:4], aspect[:4], tuple(record[:4] for record in records), out=buffer)


def test_kernels_compile_where_nothing_can_be_written(monkeypatch):
    monkeypatch.setattr(CompileResultCacheImpl, "_locator_classes", [])

    @kernel
    def double(value):
        return 2 * value

    assert double(3) == 6
