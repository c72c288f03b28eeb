"""What a training step needs, before any of it is asked for: memory, from below, and operations.

The method is built without memory (on PyTorch's meta device) and its forward pass runs on fake
tensors, which have the shapes, types and devices of the real ones and no numbers.

Shapes: B images of one process and part of a batch.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mast.augment import Pipeline, Record, Views
from mast.core.collectives import processes
from mast.core.memory import kept_for_backward, size_of
from mast.core.seeds import drawing
from mast.methods.base import Method

# How PyTorch says that a tensor has more bytes than it can count, or a side of more.
UNCOUNTABLE = ("Storage size calculation overflowed", "Overflow when unpacking long")
MOST = 2**63  # bytes that such a tensor has at least


class StepNeeds(NamedTuple):
    """What a training step needs in one process: bytes from below, and work; 0 where not known.

    Attributes:
        views: Images of all views of B images.
        weights: Parameters and buffers of the method.
        gradients: Of the parameters that are trained.
        state: Of the optimizer.
        activations: What the forward pass keeps for the backward pass.
    """

    views: int
    weights: int = 0
    gradients: int = 0
    state: int = 0
    activations: int = 0

    @property
    def largest(self) -> tuple[int, str]:
        """What is most of it: bytes and a name."""
        fixed = self.weights + self.gradients + self.state
        return max(
            (self.activations, "activations"),
            (fixed, "weights, gradients and optimizer state"),
            (self.views, "views"),
        )

    def least(self, parts: int, again: bool) -> int:
        """Bytes of the step, from below, at its fullest.

        That is before the backward pass, or behind it, where gradients replace activations.

        Args:
            parts: In which a batch is computed: all but the first find gradients.
            again: Whether there is a second step, which finds the optimizer's state.
        """
        before = self.gradients * (parts > 1) + self.state * again
        behind = self.gradients + self.state
        return self.weights + self.views + max(before + self.activations, behind)


def step_needs(
    build: Callable[[], Method],
    pipeline: Pipeline,
    count: int,
    device: torch.device,
    dtype: torch.dtype,
    *,
    moments: int,
    channels: int = 3,
    channels_last: bool = False,
    compiled: bool = False,
) -> StepNeeds:
    """What a training step of a method needs.

    Neither the method nor its tensors are made, and no generator of random numbers moves.

    Args:
        build: The method, for training.
        pipeline: Its views.
        count: B.
        device: Where it is to be trained.
        dtype: In which the network takes images; bfloat16 stands for mixed precision.
        moments: As `mast.core.optim.moments`.
        channels: Of the images.
        channels_last: Whether weights of convolutions are in channels-last memory.
        compiled: Whether the method is to be compiled, which may keep less than autograd does:
            activations are not counted.

    Returns:
        Without weights where the method cannot be built without memory; without what follows where
        its forward pass cannot run on fake tensors: it reads numbers, has an operator that does not
        say what shape it returns, or would exchange them with processes that are running already.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    pixels = sum(count * size**2 for size in pipeline.sizes)
    step = StepNeeds(pixels * channels * dtype.itemsize)
    with _quietly(), drawing():
        try:
            with torch.device("meta"):
                method = build().train()
        except Exception as error:
            return step._replace(weights=_uncountable(error))
        trained = [parameter for parameter in method.parameters() if parameter.requires_grad]
        weights = size_of([*method.parameters(), *method.buffers()])
        gradients = size_of(trained)
        step = step._replace(weights=weights, gradients=gradients, state=moments * gradients)
        if compiled or processes() > 1:
            return step
        try:
            # A kernel without shapes would be run on real memory to learn them.
            with FakeTensorMode(allow_fallback_kernels=False, allow_non_fake_inputs=True):
                _onto(method, device, channels_last)
                views = _views(pipeline, count, channels, device, dtype)
                mixed = dtype is not torch.float32

                def forward() -> dict[str, Tensor]:
                    with torch.autocast(device.type, dtype if mixed else None, enabled=mixed):
                        output: dict[str, Tensor] = method(views, 0.0)
                        return output

                fixed = [*method.parameters(), *method.buffers(), *views.images]
                return step._replace(activations=kept_for_backward(forward, fixed))
        except Exception as error:
            return step._replace(activations=_uncountable(error))


def step_flops(build: Callable[[], Method], pipeline: Pipeline, count: int) -> int:
    """Floating-point operations of the matrix products and convolutions of a step.

    A teacher has no backward pass, and a frozen encoder none: what is counted is what is done, but
    for the scores that a fused attention computes again in its backward pass.

    Args:
        build: The method, for training.
        pipeline: Its views.
        count: B.

    Returns:
        Forward and backward, a product and its sum as two; 0 where a step cannot run on fake
        tensors, as in `step_needs`.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    device = torch.device("cpu")  # it depends on none, and this one is always there
    with _quietly(), drawing():
        try:
            with torch.device("meta"):
                method = build().train()
            with FakeTensorMode(allow_fallback_kernels=False, allow_non_fake_inputs=True):
                _onto(method, device, channels_last=False)
                views = _views(pipeline, count, method.encoder.channels, device, torch.float32)
                with _attention_as_products(), FlopCounterMode(display=False) as counter:
                    method(views, 0.0)["loss"].backward()
        except Exception:  # of whatever kind: an encoder's own code runs here
            return 0
    return counter.get_total_flops()


def _views(
    pipeline: Pipeline, count: int, channels: int, device: torch.device, dtype: torch.dtype
) -> Views:
    """Views of B images as a method takes them, without numbers."""
    records = tuple(_of_many(record, count) for record in pipeline.draw(1, torch.Generator()))
    images = tuple(
        torch.empty(count, channels, size, size, dtype=dtype, device=device)
        for size in pipeline.sizes
    )
    label_B = torch.zeros(count, dtype=torch.int64)
    return Views(images, records, None, torch.ones(count), label_B)


def _of_many(record: Record, count: int) -> Record:
    """The record of one sample as that of many, in the memory of one."""
    parameters = {
        name: {key: value.expand(count, *value.shape[1:]) for key, value in drawn.items()}
        for name, drawn in record.parameters.items()
    }
    return Record(record.names, record.applied_BK.expand(count, -1), parameters)


def _onto(method: Method, device: torch.device, channels_last: bool) -> None:
    """Replace all tensors of a method by fake ones, in place; once where several places share."""
    replaced: dict[Tensor, Tensor] = {}
    for module in method.modules():
        for own in (module._parameters, module._buffers):
            for name, tensor in own.items():
                if tensor is None:
                    continue
                if tensor not in replaced:
                    fake = torch.empty_strided(
                        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device
                    )
                    if channels_last and tensor.ndim == 4:
                        fake = fake.contiguous(memory_format=torch.channels_last)
                    if isinstance(tensor, nn.Parameter):
                        fake = nn.Parameter(fake, tensor.requires_grad)
                    replaced[tensor] = fake
                own[name] = replaced[tensor]  # type: ignore[assignment]


def _uncountable(error: Exception) -> int:
    """Bytes, from below, of what could not be made: 0, unless it would have too many to count."""
    return MOST if any(said in str(error) for said in UNCOUNTABLE) else 0


@contextmanager
def _attention_as_products() -> Iterator[None]:
    """Without fused kernels, of which PyTorch's counter of operations does not know all."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # of `nn.MultiheadAttention` in a teacher
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without warnings and logs: what is done here is done again with real tensors."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
