"""The contract of an augmentation operator: sample parameters, then apply them.

Legend: B samples, C channels, H and W pixels. Images are in [0, 1], in and out; kernels clip to it.
Kernels compute in float32.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import reduce
from math import inf, isfinite
from typing import Any, ClassVar, TypeAlias, TypeVar, dataclass_transform, final

import numpy as np
import torch
from torch import Tensor

from mast.core.arguments import as_list, check_fields
from mast.core.errors import UserError

SMALLEST = 8  # pixels: side of the smallest view
Parameters: TypeAlias = dict[str, Tensor]
Bounds: TypeAlias = Mapping[str, tuple[float, float]]
Step: TypeAlias = Callable[[np.ndarray, slice], None]  # draws or changes images of part of a batch


@dataclass(frozen=True)
class Record:
    """One view of a batch, as decisions: enough to draw its pixels again.

    Args:
        names: The K operators.
        applied_BK: bool, the operator was applied to the sample.
        parameters: Operator name -> parameter name -> tensor of length B, for every sample, whether
            the operator was applied or not.
    """

    names: tuple[str, ...]
    applied_BK: Tensor
    parameters: dict[str, Parameters]

    def __len__(self) -> int:
        return len(self.applied_BK)

    def __getitem__(self, samples: slice) -> "Record":
        return _combined([self], lambda parts: parts[0][samples])

    def sharing(self, other: "Record", names: Sequence[str]) -> "Record":
        """This record with the decisions of another on some operators."""
        if not names:
            return self
        shared_K = torch.tensor([name in names for name in self.names])
        return Record(
            self.names,
            torch.where(shared_K, other.applied_BK, self.applied_BK),
            self.parameters | {name: other.parameters[name] for name in names},
        )

    def applied(self, name: str) -> Tensor:
        """applied_B of one operator; all False where the record does not know it."""
        if name not in self.names:
            return torch.zeros(len(self), dtype=torch.bool, device=self.applied_BK.device)
        return self.applied_BK[:, self.names.index(name)]


def join(records: Sequence[Record]) -> Record:
    """Put records of the same operators one after the other."""
    return records[0] if len(records) == 1 else _combined(records, torch.cat)


def _combined(records: Sequence[Record], combine: Callable[[list[Tensor]], Tensor]) -> Record:
    """A record each of whose tensors is made from those of some records."""
    first = records[0]
    return Record(
        first.names,
        combine([record.applied_BK for record in records]),
        {
            name: {
                key: combine([record.parameters[name][key] for record in records]) for key in drawn
            }
            for name, drawn in first.parameters.items()
        },
    )


@final
class Views:
    """The augmented views of a batch and the record of each.

    No tuple and no dataclass, on purpose: in mixed precision Fabric would look into one and round
    angles, places and aspect ratios to bfloat16.

    Args:
        images: Of every view, images_BCHW in [0, 1]; views may differ in size.
        records: What was applied to each.
        aspect_B: Width / height of the original images, on the CPU; None where all are square.
        label_B: Their classes, on the CPU, for a method that learns from labels.
    """

    def __init__(
        self,
        images: tuple[Tensor, ...],
        records: tuple[Record, ...],
        aspect_B: Tensor | None = None,
        label_B: Tensor | None = None,
    ) -> None:
        self.images = images
        self.records = records
        self.aspect_B = aspect_B
        self.label_B = label_B

    @property
    def names(self) -> tuple[str, ...]:
        """The K operators."""
        return self.records[0].names

    @property
    def active_BK(self) -> Tensor:
        """bool: the operator was applied to the sample in at least one of the views."""
        return reduce(torch.logical_or, (record.applied_BK for record in self.records))


class Stage(IntEnum):
    """When an operator acts within a view; within a stage the order of `OPERATORS` holds."""

    WARP = 0
    COLOR = 1
    EQUALIZE = 2  # after the other changes of tone, so that their histogram is the one it flattens
    BLUR = 3
    SOLARIZE = 4  # after the blurs, as in BYOL
    NOISE = 5  # after the blurs, which would average it away
    EDGE = 6
    OCCLUSION = 7


@dataclass(frozen=True)
class Operator:
    """A sampler of parameters and a kernel that applies them to a batch.

    The pipeline alone decides which samples an operator is applied to; `sample` draws for all. What
    is the same for all operators of a class is set by `operator`.

    Args:
        size: Side of the view in pixels; magnitudes in pixels scale with it.
        probability: Chance that a sample on which it may act is transformed.
    """

    name: ClassVar[str]
    changes: ClassVar[str]  # the property of an image that no invariance to it can keep
    stage: ClassVar[Stage]
    function: ClassVar[Callable[..., Tensor]]  # its kernel in PyTorch
    kernel: ClassVar[str | None]  # that in `compiled` and `fused`; None: `apply` is used
    drawn: ClassVar[Mapping[str, float]]  # its magnitudes, and for each the one without effect
    graded: ClassVar[bool]  # whether it has a magnitude, or is done or not
    two_sided: ClassVar[bool] = False  # whether the magnitude without effect is within the range
    of_colors: ClassVar[bool] = False  # whether it needs red, green and blue
    within: ClassVar[Bounds] = {}  # of fields: the least and the most

    size: int
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self)
        if self.size < SMALLEST:
            raise UserError(f"expected size to be {SMALLEST} pixels or more, got {self.size}")
        for field in fields(self):
            value = getattr(self, field.name)
            ends = [] if value is None else as_list(value)
            least, most = (0, 1) if field.name == "probability" else (-inf, inf)
            least, most = self.within.get(field.name, (least, most))
            if sorted(ends) != ends or not all(
                isfinite(end) and least <= end <= most for end in ends
            ):
                raise UserError(
                    f"{self.name}: expected {field.name} from {least:g} to {most:g}, the smaller "
                    f"first, got {value}"
                )

    def magnitudes(self) -> dict[str, Any]:
        """What is drawn for a view of this size, ranges and bounds by name; no switches."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value
            for name, value in own.items()
            if name not in ("size", "probability") and not isinstance(value, bool)
        }

    def bounds(self, name: str) -> tuple[float, float]:
        """The range of a magnitude, by default the field of its name."""
        own: tuple[float, float] = getattr(self, name)
        return own

    def sample(self, n: int, generator: torch.Generator) -> Parameters:
        """Draw the parameters of `n` samples: tensors of length n, by name; maybe none."""
        return {name: uniform(n, self.bounds(name), generator) for name in self.drawn}

    def at_magnitude(self, magnitude: float, parameters: Parameters) -> Parameters:
        """Give every sample the same strength; directions, places and orders stay as drawn.

        `magnitude` is from 0, the weakest that `sample` draws or no change, to 1.
        """
        fixed = {}
        for name, neutral in self.drawn.items():
            bounds = self.bounds(name)
            if self.two_sided:
                fixed[name] = away(magnitude, bounds, parameters[name], neutral)
            else:
                weakest_first = sorted((abs(bound - neutral), bound) for bound in bounds)
                ends = [bound for _, bound in weakest_first]
                fixed[name] = between(magnitude, ends, parameters[name])
        return parameters | fixed

    @classmethod
    def effect(cls, parameters: Parameters, aspect_B: Tensor) -> Tensor:
        """effect_BT: what was drawn, in T numbers that are 0 where the operator changes nothing.

        A one for an operator without parameters, which is done or not. `aspect_B` is width / height
        of the original images.
        """
        if not cls.drawn:
            return torch.ones(len(aspect_B), 1)
        distances = [parameters[name] - neutral for name, neutral in cls.drawn.items()]
        distance_BT = torch.stack(distances, dim=1)
        return distance_BT if cls.two_sided else distance_BT.abs()

    @classmethod
    def difference(cls, change_BT: Tensor, records: Sequence[Record]) -> Tensor:
        """How two views differ in their effects, in numbers that an observer of both could tell.

        `change_BT` is the `effect` on the first view less that on the second, 0 where it was not
        applied; `records` has all that was done to both: what other operators hide is NaN.

        Returns:
            (B, T) or more numbers: the difference, and for an operator that is done or not also
            whether the views differ.
        """
        return change_BT if cls.graded else torch.cat([change_BT, change_BT.abs()], dim=1)

    def apply(self, images_BCHW: Tensor, parameters: Parameters) -> Tensor:
        """Transform every sample with its own parameters, as `sample` draws them.

        Images are float32 in [0, 1] and never written to.
        """
        return type(self).function(images_BCHW, *self.arguments(parameters))

    def arguments(self, parameters: Parameters) -> Sequence[Tensor]:
        """What all kernels take of N samples, in their order; by default the parameters.

        Floating point tensors reach a compiled kernel as float32, others in `fused` as int32.
        """
        return [*parameters.values()]

    def compiled(self, applied_B: Tensor, parameters: Parameters) -> Step | None:
        """What transforms part of a batch in place, if there is a compiled kernel.

        It takes images_BCHW (contiguous float32), and where in the batch they are.
        """
        from mast.augment.compiled import operators

        kernel = getattr(operators, self.kernel or "", None)
        if kernel is None:
            return None
        arguments = [
            (argument.float() if argument.is_floating_point() else argument).numpy()
            for argument in self.arguments(parameters)
        ]

        def step(images_BCHW: np.ndarray, some: slice) -> None:
            index_N = np.flatnonzero(applied_B.numpy()[some])
            if len(index_N):
                kernel(images_BCHW, index_N, *(argument[some] for argument in arguments))

        return step


C = TypeVar("C", bound=Operator)


@dataclass_transform(frozen_default=True)
def operator(
    name: str,
    changes: str,
    stage: Stage,
    kernel: Callable[..., Tensor] | None = None,
    drawn: Mapping[str, float] | None = None,
    **others: Any,
) -> Callable[[type[C]], type[C]]:
    """Make a class a frozen dataclass, and set what its operators have in common.

    `kernel` takes images and `Operator.arguments`, as its namesakes in `compiled` and `fused` do,
    where there are some; without one the class has its own `apply`. `others` are more class
    variables of `Operator`.
    """

    def decorated(kind: type[C]) -> type[C]:
        kind.name, kind.changes, kind.stage, kind.drawn = name, changes, stage, drawn or {}
        kind.kernel = None
        if kernel is not None:
            kind.function = staticmethod(kernel)
            if kernel.__module__.startswith(__package__):  # another's may have the same name
                kind.kernel = kernel.__name__
        for key, value in others.items():
            setattr(kind, key, value)
        kind.graded = bool(drawn) or kind.at_magnitude is not Operator.at_magnitude
        return dataclass(frozen=True)(kind)

    return decorated


def hide(numbers_BT: Tensor, hidden_B: Tensor) -> Tensor:
    """NaN in the rows that no observer could tell; of any dtype or device, without waiting."""
    hidden_B = hidden_B.to(numbers_BT.device, non_blocking=True)
    return numbers_BT.masked_fill(hidden_B[:, None], torch.nan)


def between(magnitude: float, bounds: Sequence[float], like: Tensor) -> Tensor:
    """The same float32 number for all samples: the first bound at 0, the second at 1."""
    return torch.full_like(
        like, bounds[0] + magnitude * (bounds[1] - bounds[0]), dtype=torch.float32
    )


def away(magnitude: float, bounds: tuple[float, float], drawn: Tensor, neutral: float) -> Tensor:
    """Numbers on the drawn side of `neutral`, at a share of the way to the bound of that side."""
    low, high = (abs(bound - neutral) for bound in bounds)
    return neutral + magnitude * torch.where(drawn < neutral, -low, high)


def uniform(n: int, bounds: tuple[float, float], generator: torch.Generator) -> Tensor:
    """Draw `n` float32 numbers uniformly between two bounds."""
    low, high = bounds
    return torch.rand(n, generator=generator) * (high - low) + low


def per_pixel(values_B: Tensor, images_BCHW: Tensor) -> Tensor:
    """Bring one float32 value per sample to the images' device, broadcastable over C, H and W."""
    values_B = values_B.to(images_BCHW.device, torch.float32, non_blocking=True)
    return values_B[:, None, None, None]
