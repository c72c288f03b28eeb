"""A step's forward and backward pass, recorded once as CUDA graphs and replayed for every batch.

A small step is bound by the host, which launches a thousand kernels one by one; a replay launches
two graphs. What a step may do is in the contract: `Method.step` computes on the device alone, and
all that changes between steps is in tensors, of which a graph knows the addresses.

Shapes: N bytes of what the host says, L losses and statistics.
"""

import logging
import math
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from mast.augment import Views
from mast.core import graphs
from mast.core.errors import UserError
from mast.core.transfer import PackedLayout, packed, pinned, unpacked
from mast.methods.base import Method

_log = logging.getLogger("mast")

MOST_PIXELS = 2**22  # of all views of a batch: larger steps keep a GPU busy (an estimate)
# How far a replay may be from the step as it is: what is looked for is a wrong graph, not rounding.
CLOSE = {torch.float32: 1e-2, torch.bfloat16: 5e-2}
ROUNDING = 1e-2  # of all gradients' norm, below which one counts as rounding (a guess)
CHECKED = 2  # steps of a phase: a number that was recorded is right in the first one

Step = Callable[[Views, float], dict[str, Tensor]]


def worth_replaying(batch_size: int, sizes: tuple[int, ...]) -> bool:
    """Whether a step is small enough to be bound by the host.

    Args:
        batch_size: Images of one part of the batch.
        sizes: Of the views, in pixels.
    """
    return batch_size * sum(size**2 for size in sizes) <= MOST_PIXELS


class Replay:
    """Steps of a method, each a replay of the first one of its phase.

    A graph is recorded at the first step of a phase. At this step and the next, which has other
    numbers, it is compared with the step as it is: losses, gradients, and buffers afterwards. The
    views have to lie in the same memory at every step, as in `Pipeline.buffer`. Gradients are those
    of one step: they cannot be accumulated.

    Args:
        method: In training mode, on the device where it stays; not wrapped.
        dtype: In which the network computes; bfloat16 stands for mixed precision.
        asked: Whether the user asked for it: what cannot be recorded is an error then. Otherwise
            steps are computed as they are, and a warning says why.
    """

    def __init__(self, method: Method, dtype: torch.dtype, asked: bool) -> None:
        self.method = method
        self.dtype = dtype
        self.asked = asked
        self._recorded: _Recorded | None = None
        self._failed = False

    def __call__(self, step: Step, views: Views, progress: float) -> dict[str, Tensor]:
        """As `Method.forward`.

        Args:
            step: The method as it is called without a replay.
            views: Of this process's images.
            progress: Share of the run that is done.
        """
        if self._failed:
            return step(views, progress)
        row_N, layout = packed(self.method.host_inputs(views, progress))
        phase = self.method.phase(progress)
        try:
            if self._recorded is None or self._recorded.phase != phase:
                self._recorded = None  # its memory is for the next
                self._recorded = _Recorded(self.method, self.dtype, views, row_N, layout, phase)
            self._recorded.take(row_N, layout, views)
        except graphs.GraphError as error:
            if self.asked:
                raise UserError(
                    f"cuda_graphs: this step cannot be recorded as a CUDA graph: {error}"
                ) from error
            _log.warning(
                "steps are not replayed as CUDA graphs, which is slower where they are small: %s",
                error,
            )
            self._recorded, self._failed = None, True
        if self._recorded is None:  # behind the error, which holds the memory of the attempt
            return step(views, progress)
        return self._recorded()


class _Recorded:
    """The graphs of a phase: one forward, one backward."""

    def __init__(
        self,
        method: Method,
        dtype: torch.dtype,
        views: Views,
        row_N: Tensor,
        layout: PackedLayout,
        phase: Hashable,
    ) -> None:
        self.phase = phase
        self.step = _FromTensors(method, dtype, layout, phase)
        self.row_N = row_N.to(views.images[0].device)
        self.images = views.images
        self.trained = {name: own for name, own in method.named_parameters() if own.requires_grad}
        self.unchecked = CHECKED
        with _Unchanged(method, self.row_N.device) as before:

            def plain() -> None:
                before.restore()
                self._plain()

            graphs.warm_up(plain, self.row_N.device)
            before.restore()
            self.forward = graphs.record(self._values)
            self.upstream_L = torch.ones_like(self.forward.result)
            self.backward = graphs.record(
                lambda: self._gradients(self.forward.result, self.upstream_L), self.forward.pool
            )
            # without the nodes of the recording, which belong to its stream
            self.forward = self.forward._replace(result=self.forward.result.detach())

    def take(self, row_N: Tensor, layout: PackedLayout, views: Views) -> None:
        """Take a batch, whose views are where those of the first one were."""
        places = [images_BCHW.data_ptr() for images_BCHW in views.images]
        assert places == [images_BCHW.data_ptr() for images_BCHW in self.images], "views moved"
        assert layout == self.step.layout, "what the host says has other shapes"
        self.row_N.copy_(pinned(row_N, self.row_N.device), non_blocking=True)
        if self.unchecked:
            self._check()
            self.unchecked -= 1

    def __call__(self) -> dict[str, Tensor]:
        """The losses of the batch that was taken."""
        values_L: Tensor = _Replayed.apply(self, *self.trained.values())
        output = dict(zip(self.step.names, values_L.detach().unbind(), strict=True))
        return {**output, "loss": values_L[0]}

    def _check(self) -> None:
        """Hold a replay against the step as it is; what either changes is undone."""
        close = CLOSE[self.step.dtype]
        with _Unchanged(self.step.method, self.row_N.device) as before:
            value_L, gradients = self._plain()
            buffers = [buffer.clone() for buffer in self.step.method.buffers()]
            before.restore()
            self.upstream_L.fill_(1.0)
            self.forward.replay()
            self.backward.replay()
            _compare_losses(self.step.names, value_L, self.forward.result, close)
            _compare_gradients(tuple(self.trained), gradients, self.backward.result, close)
            for (name, found), expected in zip(
                self.step.method.named_buffers(), buffers, strict=True
            ):
                _compare_buffer(name, expected, found, close)

    def _plain(self) -> tuple[Tensor, list[Tensor]]:
        """Losses and gradients without a graph."""
        values_L = self._values()
        return values_L.detach(), self._gradients(values_L, torch.ones_like(values_L))

    def _values(self) -> Tensor:
        values_L: Tensor = self.step(self.row_N, *self.images)
        return values_L

    def _gradients(self, values_L: Tensor, upstream_L: Tensor) -> list[Tensor]:
        gradients = torch.autograd.grad(values_L, list(self.trained.values()), upstream_L)
        # two parameters may get one tensor, which optimizers and clipping change in place
        taken: set[int] = set()
        result = []
        for gradient in gradients:
            place = gradient.data_ptr()
            result.append(gradient.clone() if place in taken else gradient)
            taken.add(place)
        return result


class _Replayed(torch.autograd.Function):
    """A node whose forward and backward pass are graphs."""

    @staticmethod
    def forward(ctx: Any, recorded: _Recorded, *parameters: Tensor) -> Tensor:
        ctx.recorded = recorded
        recorded.forward.replay()
        return recorded.forward.result.clone()  # which the next replay writes again

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        recorded: _Recorded = ctx.recorded
        ctx.recorded = None  # the next phase needs its memory
        recorded.upstream_L.copy_(upstream[0])
        recorded.backward.replay()
        return None, *(gradient.detach() for gradient in recorded.backward.result)


class _FromTensors(nn.Module):
    """A step of a phase, from tensors to the losses in one tensor."""

    def __init__(
        self, method: Method, dtype: torch.dtype, layout: PackedLayout, phase: Hashable
    ) -> None:
        super().__init__()
        self.method = method
        self.dtype = dtype
        self.layout = layout
        self.phase = phase
        self.names: tuple[str, ...] = ()

    def forward(self, row_N: Tensor, *images: Tensor) -> Tensor:
        """Losses and statistics, (L,), the loss first; only it has a gradient."""
        mixed = self.dtype is not torch.float32
        # what autocast would keep of one pass, another could not read
        with torch.autocast(row_N.device.type, self.dtype, enabled=mixed, cache_enabled=False):
            output = self.method.step(images, unpacked(row_N, self.layout), self.phase)
        loss = output.pop("loss")
        self.names = ("loss", *output)
        return torch.stack(
            [loss.float(), *(value.detach().float().reshape(()) for value in output.values())]
        )


class _Unchanged:
    """What trying a step changes besides gradients; it is undone at the end."""

    def __init__(self, method: Method, device: torch.device) -> None:
        self._buffers = [(buffer, buffer.clone()) for buffer in method.buffers()]
        self._device = device

    def __enter__(self) -> "_Unchanged":
        self._random = torch.get_rng_state()
        self._random_there = _random_state(self._device)
        return self

    @torch.no_grad()
    def restore(self) -> None:
        """As it was: statistics, queues, centres and generators of random numbers."""
        for buffer, before in self._buffers:
            buffer.copy_(before)
        torch.set_rng_state(self._random)
        if self._random_there is not None:
            torch.cuda.set_rng_state(self._random_there, self._device)

    def __exit__(self, *_: object) -> None:
        self.restore()


def _random_state(device: torch.device) -> Tensor | None:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _compare_losses(
    names: tuple[str, ...], expected_L: Tensor, found_L: Tensor, close: float
) -> None:
    for name, own, replayed in zip(names, expected_L.tolist(), found_L.tolist(), strict=True):
        if math.isfinite(own):
            same = abs(replayed - own) <= close * max(abs(own), 1.0)
        else:
            same = own == replayed or (math.isnan(own) and math.isnan(replayed))
        if not same:
            raise graphs.GraphError(f"replayed, {name} is {replayed:.6g} in place of {own:.6g}")


def _compare_gradients(
    names: tuple[str, ...], expected: list[Tensor], found: list[Tensor], close: float
) -> None:
    """Of every parameter; one that is near zero beside the others is mostly rounding."""
    off_P, own_P, found_P = (
        torch.stack(torch._foreach_norm(tensors))
        for tensors in (torch._foreach_sub(found, expected), expected, found)
    )
    allowed_P = close * (own_P + ROUNDING * torch.linalg.vector_norm(own_P))
    wrong_P = (off_P > allowed_P) | ((own_P == 0) != (found_P == 0))
    wrong_P &= allowed_P.isfinite()
    if wrong_P.any():
        at = int(wrong_P.nonzero()[0])
        raise graphs.GraphError(
            f"replayed, the gradient of {names[at]} is off by {off_P[at]:.3g}, and its norm is "
            f"{own_P[at]:.3g}"
        )


def _compare_buffer(name: str, expected: Tensor, found: Tensor, close: float) -> None:
    same = torch.equal(expected, found)
    if not same and expected.is_floating_point():
        off = torch.linalg.vector_norm(found.double() - expected.double())
        same = bool(off <= close * torch.linalg.vector_norm(expected.double()).clamp(min=1.0))
    if not same:
        raise graphs.GraphError(f"replayed, it leaves {name} as it should not")
