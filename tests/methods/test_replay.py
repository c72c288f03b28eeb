"""A replayed step computes what the step does: on a tape here, which knows memory and not names."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import tape
import torch
from test_methods_conformance import VARIANTS, build, optimizer_of, views_for
from tiny import BATCH, build_method, configure, make_views
from torch import Tensor

import mast
from mast.augment import Views
from mast.commands import pretrain as command
from mast.core import graphs
from mast.core.errors import UserError
from mast.core.graphs import record as record_on_a_gpu
from mast.core.run import RunFolder
from mast.core.transfer import packed, unpacked
from mast.methods import Method
from mast.methods import replay as replays
from mast.methods.replay import Replay, worth_replaying

pytestmark = pytest.mark.slow

STEPS = 4
PHASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "swav": ("swav", {}, {"prototypes": 12, "queue": BATCH}),
    "dino": ("dino", {}, {"prototypes": 12, "warmup": 1.0}),
}


@pytest.fixture(autouse=True)
def taped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "record", tape.record)
    monkeypatch.setattr(graphs, "warm_up", tape.warm_up)


def train(method: Method, replayed: bool) -> tuple[list[dict[str, Tensor]], dict[str, Any]]:
    """Losses of a few steps on views in the same memory, and what the method is afterwards."""
    optimizer, memory = optimizer_of(method, "adamw"), views_for(method, 0).images
    replay = Replay(method, torch.float32, asked=True)
    found = []
    for number in range(STEPS):
        views = views_for(method, number)
        for place, images_BCHW in zip(memory, views.images, strict=True):
            place.copy_(images_BCHW)
        given = Views(memory, views.records, None, views.aspect_B, views.label_B)
        optimizer.zero_grad(set_to_none=True)
        progress = number / STEPS
        output = replay(method, given, progress) if replayed else method(given, progress)
        output["loss"].backward()
        optimizer.step()
        method.after_step((number + 1) / STEPS)
        found.append(output)
    return found, method.state_dict()


@pytest.mark.parametrize("variant", [*VARIANTS, *(f"{name}, phases" for name in PHASES)])
def test_replayed_steps_are_the_steps(variant: str) -> None:
    def made() -> Method:
        name = variant.removesuffix(", phases")
        return build(variant) if name == variant else build_method(*PHASES[name])

    (losses, expected), (replayed, found) = (train(made(), replayed) for replayed in (False, True))
    for own, again in zip(losses, replayed, strict=True):
        assert own.keys() == again.keys()
        for name, value in own.items():
            assert torch.equal(value.nan_to_num(9), again[name].nan_to_num(9)), name
            assert again[name].requires_grad == (name == "loss")
    for name, value in expected.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(found[name])), name


def test_the_tape_repeats_what_the_host_said() -> None:
    """Else what follows from the progress of a run could hide in a number."""
    place, number = torch.ones(2), [2.0]
    recorded = graphs.record(lambda: place * number[0])
    place.add_(1.0)
    number[0] = 5.0
    recorded.replay()
    assert recorded.result.tolist() == [4.0, 4.0]


def wrong(work: Any, pool: Any = None) -> graphs.Graph[Any]:
    """A recording whose replay leaves something else."""
    result, replay, _ = tape.record(work, pool)
    tensors = [result] if isinstance(result, Tensor) else result

    def replayed() -> None:
        replay()
        with torch.no_grad():
            for tensor in tensors:
                tensor.mul_(1.2)

    return graphs.Graph(result, replayed, None)


def reading(work: Any, pool: Any = None) -> graphs.Graph[Any]:
    """A recording of work that reads a number."""
    return tape.record(lambda: (work(), torch.ones(1).item())[0], pool)


@pytest.mark.parametrize(("record", "says"), [(wrong, "in place of"), (reading, "is read")])
def test_what_cannot_be_replayed_is_computed_as_it_is(
    record: Any, says: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    views, plain = make_views(0), build("exempt")
    expected = plain(views, 0.0)
    monkeypatch.setattr(graphs, "record", record)
    with pytest.raises(UserError, match=f"cannot be recorded.*{says}"):
        Replay(build("exempt"), torch.float32, asked=True)(plain, views, 0.0)
    method = build("exempt")
    replay = Replay(method, torch.float32, asked=False)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            found = replay(method, views, 0.0)
    assert len(caplog.records) == 1
    assert says in caplog.text
    assert torch.equal(found["loss"], expected["loss"])


def test_wrong_gradients_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    recorders = iter((tape.record, wrong))  # forward, backward

    def record(work: Any, pool: Any = None) -> graphs.Graph[Any]:
        return next(recorders)(work, pool)

    monkeypatch.setattr(graphs, "record", record)
    method = build("vicreg")
    with pytest.raises(UserError, match=r"the gradient of .* is off by"):
        Replay(method, torch.float32, asked=True)(method, make_views(0), 0.0)


def test_a_lost_gradient_is_seen_beside_large_ones() -> None:
    expected, found = ([torch.ones(9), torch.full((1,), small)] for small in (1e-9, 0.0))
    with pytest.raises(graphs.GraphError, match="the gradient of bias"):
        replays._compare_gradients(("weight", "bias"), expected, found, 0.01)
    replays._compare_gradients(("weight", "bias"), expected, expected, 0.01)


def test_a_number_of_the_first_step_is_seen_at_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is right in the step that is recorded."""
    method, factor = build("vicreg"), [1.0]
    step = type(method).step

    def scaled(*given: Any) -> dict[str, Tensor]:
        output = step(method, *given)
        return output | {"loss": output["loss"] * factor[0]}

    monkeypatch.setattr(method, "step", scaled)
    replay, views = Replay(method, torch.float32, asked=True), make_views(0)
    replay(method, views, 0.0)
    factor[0] = 1.5
    with pytest.raises(UserError, match="replayed, loss is"):
        replay(method, views, 0.0)


def test_a_wrong_buffer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    method = build("moco v2")

    def record(work: Any, pool: Any = None) -> graphs.Graph[Any]:
        result, replay, _ = tape.record(work, pool)

        @torch.no_grad()
        def forgetful() -> None:
            before = method.queue.key_ND.clone()
            replay()
            method.queue.key_ND.copy_(before)

        return graphs.Graph(result, forgetful, None)

    monkeypatch.setattr(graphs, "record", record)
    with pytest.raises(UserError, match=r"it leaves queue\.key_ND"):
        Replay(method, torch.float32, asked=True)(method, make_views(0), 0.0)


def test_losses_that_are_not_finite_are_the_same_ones() -> None:
    numbers = torch.tensor([float("inf"), float("nan"), 1.0])
    replays._compare_losses(("a", "b", "c"), numbers, numbers.clone(), 0.01)
    with pytest.raises(graphs.GraphError, match="a is -inf"):
        replays._compare_losses(("a",), numbers[:1], -numbers[:1], 0.01)


def test_trying_a_step_leaves_no_trace() -> None:
    """Statistics, queues and random numbers are those of a run without a replay."""
    method, random = build("moco v2"), torch.get_rng_state()
    before = {name: buffer.clone() for name, buffer in method.named_buffers()}
    views = make_views(0)
    row_N, layout = packed(method.host_inputs(views, 0.0))
    recorded = replays._Recorded(method, torch.float32, views, row_N, layout, None)
    recorded.take(row_N, layout, views)
    assert all(torch.equal(buffer, before[name]) for name, buffer in method.named_buffers())
    assert torch.equal(torch.get_rng_state(), random)


def test_a_run_with_replayed_steps_is_the_run(photos: Path, tmp_path: Path) -> None:
    made = []

    def replay_of(config: Any, method: Method, *_: Any) -> Replay:
        made.append(Replay(method, torch.float32, asked=True))
        return made[-1]

    mast.pretrain(configure(photos, tmp_path / "plain", "dino_small"))
    with patch.object(command, "replay_of", replay_of):
        mast.pretrain(configure(photos, tmp_path / "replayed", "dino_small"))
    assert made[0]._recorded is not None
    plain, replayed = (RunFolder(tmp_path / name) for name in ("plain", "replayed"))
    losses = [
        [(line["step"], line["loss"]) for line in run.read_metrics() if "loss" in line]
        for run in (plain, replayed)
    ]
    assert losses[0] == losses[1] != []
    first, second = (mast.load_encoder(run.path).state_dict() for run in (plain, replayed))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_small_steps_are_worth_it() -> None:
    assert worth_replaying(64, (64, 64))
    assert worth_replaying(512, (32, 32))
    assert not worth_replaying(64, (224, 224))


def test_a_run_that_cannot_be_replayed_is_refused(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="for one process on a GPU"):
        mast.pretrain(configure(photos, tmp_path / "run", cuda_graphs=True))
    with pytest.raises(UserError, match="computes a batch as a whole"):
        configure(photos, tmp_path / "run", cuda_graphs=True, accumulate=2)


def test_what_the_host_says_arrives_bit_for_bit() -> None:
    tensors = {
        "flags": torch.tensor([[True, False, True]]),
        "number": torch.tensor(0.1, dtype=torch.float64),
        "nothing": torch.empty(0, 3),
        "no numbers": torch.empty(1).expand(0),  # with a stride of 0
        "strided": torch.arange(12.0).view(3, 4).T,
        "whole": torch.arange(5) - 2,
        "not a number": torch.tensor([float("nan"), -0.0]),
    }
    found = unpacked(*packed(tensors))
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(found[name].nan_to_num(7), tensor.nan_to_num(7)), name
    assert unpacked(*packed({})) == {}


def test_a_failed_recording_says_why_and_restores_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch says that a recording failed, in place of why, and leaves its stream behind."""
    left = []

    @contextmanager
    def stream(which: str) -> Iterator[None]:
        try:
            yield
        finally:
            left.append(which)

    @contextmanager
    def graph(*_: Any, **__: Any) -> Iterator[None]:
        try:
            yield
        finally:
            raise RuntimeError("operation failed due to a previous error")

    def work() -> None:
        raise RuntimeError("a number is read")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "the caller's")
    monkeypatch.setattr(torch.cuda, "stream", stream)
    with pytest.raises(graphs.GraphError, match="RuntimeError: a number is read"):
        record_on_a_gpu(work)
    assert left == ["the caller's"]


def test_parameters_that_share_a_gradient_get_one_each() -> None:
    """Clipping and LARS change gradients in place."""
    method = build("vicreg")
    row_N, layout = packed({})
    recorded = replays._Recorded(method, torch.float32, make_views(0), row_N, layout, None)
    first, second = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    recorded.trained = {"first": first, "second": second}
    gradients = recorded._gradients((first + second).square().sum()[None], torch.ones(1))
    assert torch.equal(*gradients)
    assert gradients[0].data_ptr() != gradients[1].data_ptr()
