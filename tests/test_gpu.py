"""On a GPU nothing is left on the CPU, and the host waits for no step but logged ones."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from fake_gpu import GPU, FakeFabric, FakeGPU, move, on_gpu
from tiny import ENCODER, encoder_of
from tiny_evaluation import tiny_set
from torch import Tensor

from mast.augment import PRESETS, Pipeline, Preset, View, Views
from mast.core.canvases import Canvases
from mast.core.compute import Compute
from mast.core.loop import Training
from mast.core.optim import OptimizerConfig, make_optimizer
from mast.encoders.extract import extract
from mast.evaluation.training_views import TrainingViews
from mast.methods import METHODS, MastCConfig, MastConfig, Method, VICRegConfig, method_of
from mast.models import Encoder
from paper.methods import BASELINES
from paper.methods.views import PRESETS as OF_BASELINES

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("baselines")]

SIZE, COUNT = 24, 16
FOUR_VIEWS = Preset(PRESETS["mast15"].operators, (View(), View(), View(size=16), View(size=16)))
VIEWS = {**PRESETS, **OF_BASELINES, "four views": FOUR_VIEWS}
SMALL: dict[str, dict[str, Any]] = {
    "moco_v2": {"queue": 2 * COUNT},
    "swav": {"prototypes": 8},
    "dino": {"prototypes": 8},
    **{name: {"queue": 2 * COUNT} for name in ("ifm", "looc", "clsa", "infomin", "prcl")},
    "obow": {"words": 2 * COUNT},
    "mae": {"dim": 16, "depth": 1, "heads": 2},
    "supervised": {"classes": 3},
}
CONFIGS: dict[str, Any] = {
    **{name: row.config(**SMALL.get(name, {})) for name, row in (METHODS | BASELINES).items()},
    "distance": MastCConfig(compare="distance", predict_from=("block", "representation")),
    "printed": MastConfig(printed=True),
    "uncertain": MastConfig(kl_weight=25.0),
    "handcrafted": MastConfig(masks="handcrafted"),
    "augself": VICRegConfig(predicted=("color", "position")),
}


def batch(count: int) -> Canvases:
    canvases = Canvases.of(torch.zeros(count, 32, 32, 3, dtype=torch.uint8))
    return replace(canvases, values_T=on_gpu(canvases.values_T))


@pytest.fixture
def without_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch looks for a driver before it makes a fake tensor or a mixed precision of a GPU."""
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_, **__: True)
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)


@pytest.fixture
def gpu(without_driver: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGPU]:
    """A test on the fake GPU, with autocast."""
    with FakeGPU() as watched:

        def pin(tensor: Tensor) -> Tensor:
            watched.pinned.append(tensor)
            return tensor

        monkeypatch.setattr(Tensor, "pin_memory", pin)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
        monkeypatch.setattr("mast.augment.fused.chain.launch", watched.launch)
        monkeypatch.setattr("mast.augment.fused.works_on", lambda device: True)
        yield watched


WAITS: dict[str, Callable[[Tensor], object]] = {
    "a number": lambda tensor: tensor.sum().item(),
    "a condition": lambda tensor: bool(tensor.sum() > 0),
    "a copy from it": lambda tensor: tensor.cpu(),
    "a copy to it": lambda tensor: torch.ones(4).to(GPU),
    "an index on the CPU": lambda tensor: tensor[torch.tensor([1, 2])],
}
ERRORS: dict[str, Callable[[Tensor], object]] = {
    "nonzero": lambda tensor: tensor.nonzero(),
    "a boolean index": lambda tensor: tensor[tensor > 0],
    "two devices": lambda tensor: tensor + torch.ones(4),
}


@pytest.mark.parametrize("name", [*WAITS, *ERRORS])
def test_what_makes_the_host_wait_is_seen(name: str, gpu: FakeGPU) -> None:
    tensor = on_gpu(torch.ones(4))
    torch.ones(4).to(GPU, non_blocking=True).add_(tensor).mul_(torch.tensor(2.0))
    assert not gpu.waits
    if name in WAITS:
        WAITS[name](tensor)
        assert len(gpu.waits) == 1
    else:
        with pytest.raises(Exception, match=r"aten\.|devices"):
            ERRORS[name](tensor)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("preset", VIEWS)
def test_views_never_wait(preset: str, fused: bool, gpu: FakeGPU) -> None:
    pipeline = Pipeline(VIEWS[preset], SIZE, compiled=fused)
    count = min(COUNT, 2 * COUNT // len(pipeline.sizes))  # at most 32 views, as AT_ONCE has it
    memory = pipeline.buffer(count, GPU, torch.bfloat16)
    views = pipeline.views(batch(count), pipeline.draw(count, torch.Generator()), memory)
    assert {images.dtype for images in views.images} == {torch.bfloat16}
    assert {images.device for images in views.images} == {GPU}
    assert not gpu.waits
    if fused:
        assert gpu.copies == gpu.launches["warp"] == gpu.launches["finish"] <= len(pipeline.sizes)
        assert gpu.launches.total() <= 16 * gpu.copies


def build(name: str, operators: tuple[str, ...]) -> Method:
    config = CONFIGS[name]
    if hasattr(config, "projector"):
        config.projector = replace(config.projector, hidden=8, dim=32)
    kind = METHODS[method_of(config)].method
    method = kind(config, Encoder(encoder_of(method_of(config)), SIZE), operators)
    any(map(move, getattr(method, "_teacher", ())))  # no part of the method
    return method


@pytest.mark.parametrize("name", CONFIGS)
def test_a_step_never_waits(name: str, gpu: FakeGPU) -> None:
    preset = PRESETS[name if name in ("looc", "clsa", "infomin") else "mast19"]
    method = build(name, preset.operators)
    kind: Any = "lars" if name == "vicreg" else "adamw"
    optimizer = make_optimizer(method.parameter_groups(), OptimizerConfig(kind), COUNT)
    records = Pipeline(preset, SIZE).draw(COUNT, torch.Generator())
    images = tuple(on_gpu(torch.ones(COUNT, 3, SIZE, SIZE)) for _ in records)
    label_B = torch.zeros(COUNT, dtype=torch.int64)
    views = Views(images, records, torch.ones(COUNT), label_B)
    training = Training(method, optimizer, 1, 3, lambda progress: 1.0, clip=1.0, log_every=2)
    steps = training.run(
        FakeFabric(mixed=True),  # type: ignore[arg-type]
        lambda epoch, start: iter(range(3)),
        lambda module, batch, step, part: module(views, 0.0),
    )
    for result in steps:
        method.after_step(0.5)
        if result.step == 1:
            assert not gpu.waits
        if result.step == 2:
            assert len(gpu.waits) == 1
            method.statistics()
            assert len(gpu.waits) <= 3  # losses, masks, powers of the pooling
            return


def test_features_wait_once_a_batch(gpu: FakeGPU) -> None:
    encoder = Encoder(ENCODER, 16)
    move(encoder)
    features_ND = extract(encoder, tiny_set(4), 16, Compute(dtype=torch.bfloat16, batch_size=8))
    assert features_ND.shape == (12, encoder.dim)
    # The first images are looked at, whether they are in [0, 1].
    assert [wait.rpartition(" ")[2] for wait in gpu.waits] == ["read", "read", "cpu", "cpu"]


def test_training_views_never_wait(gpu: FakeGPU) -> None:
    pool = (tiny_set(4), tiny_set(2, seed=1))
    views = TrainingViews(pool, torch.arange(18), 16, batch_size=8, seed=0)
    batches = list(views.epoch(FakeFabric(mixed=True), 0, 0))  # type: ignore[arg-type]
    assert {batch.images_BCHW.device for batch in batches} == {GPU}
    assert not gpu.waits
