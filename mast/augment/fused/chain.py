"""The operators of a view as a chain of kernels over a whole batch.

Which samples an operator treats stands in a table and not in the shape of a launch: every step of a
run launches the same grids over all samples, and a program whose sample did not draw its operator
ends at once. So nothing waits for the device, and once the table is there, a CUDA graph can capture
what follows; but not where an operator has no kernel here.

Legend: B samples, K operators, C = 3 channels, H and W pixels.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from subprocess import CalledProcessError
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.errors import TritonError

from mast.augment.fused import color, filters, finish, resample
from mast.augment.fused.rows import BLOCK, UNTOUCHED
from mast.augment.operator import Operator, Parameters, Record
from mast.augment.operators.filters import MotionBlur
from mast.augment.warp import Warp
from mast.core.canvases import Canvases
from mast.core.transfer import to_device

_log = logging.getLogger(__name__)

ABSENT = -1  # the column of an operator that a chain does not have
WARP, END = "warp", "end"  # columns that are no operator's


@dataclass(frozen=True)
class FusedBatch:
    """The arguments of the kernels of a batch.

    Args:
        count: Number of samples, B.
        grid: Programs of a kernel: as many for each sample as its pixels need.
        arguments: Tensors on the device, and constants, by the kernels' names for them.
        columns: Where each operator's begin in the table, by name.
        drawn: Of operators without a kernel: which images to treat, and with what.
    """

    count: int
    grid: tuple[int]
    arguments: dict[str, Any]
    columns: dict[str, int]
    drawn: dict[str, tuple[Tensor, Parameters]]

    def run(self, kernel: Any, grid: tuple[int] | None = None, **own: Any) -> None:
        """Launch a kernel with those of the arguments that it has, and its own."""
        given = self.arguments | own
        launch(kernel, grid or self.grid, {name: given[name] for name in kernel.arg_names})


def launch(kernel: Any, grid: tuple[int], arguments: dict[str, Any]) -> None:
    """Launch a kernel on the device of its tensors: all are launched here."""
    device = next(value.device for value in arguments.values() if isinstance(value, Tensor))
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[grid](**arguments)


@cache
def works_on(device: torch.device) -> bool:
    """Whether kernels can be built for a device, which takes a C compiler; says so if not."""
    arguments = {
        "values_T": torch.zeros(3, dtype=torch.uint8, device=device),
        "table": resample.smallest(device),
        "mean_BC": torch.empty(1, 3, device=device),
        "AT": 0,
        "WIDTH": resample.COLUMNS,
        "BLOCK": BLOCK,
    }
    try:
        launch(resample.canvas_means, (1,), arguments)
    except (RuntimeError, OSError, CalledProcessError, TritonError) as error:
        _log.warning(
            "views are drawn by PyTorch's kernels, which is several times slower: Triton's cannot "
            "be built for %s: %s", device, error,
        )  # fmt: skip
        return False
    return True


class Pass(NamedTuple):
    """Operators that act one after the other, and what is launched for them.

    Attributes:
        kernels: The names of the operators' kernels, in the order in which they act; those that a
            chain does not have are left out.
        launches: Fused kernels, each with a constant of its own or none.
        moves: Whether what it treats ends in the other half.
    """

    kernels: tuple[str, ...] = ()
    launches: tuple[tuple[Any, dict[str, Any]], ...] = ()
    moves: bool = False


# The jitter is in it only right behind the warp, which takes the sums that it needs.
TONE = Pass(("jitter", "grayscale", "invert", "posterize"), ((color.tone, {}),))
EQUALIZE = Pass(
    ("equalize",), ((color.count_levels, {}), (color.make_tables, {}), (color.look_up, {}))
)
BLUR = Pass(("gaussian_blur",), tuple((filters.blur_along, {"BACK": b}) for b in (False, True)))
SHARPEN = Pass(("sharpen",), ((filters.sharpen, {}),), moves=True)
CORRELATE = Pass(("motion_blur",), ((filters.correlate, {}),), moves=True)
EDGES = Pass(("blend_edges",), ((filters.blend_edges, {}),), moves=True)
GRAIN = Pass(("solarize", "add_noise"), ((finish.grain, {}),))
# The last one of every chain.
FINISH = Pass(("solarize", "add_noise", "cut_out"), ((finish.sum_colors, {}), (finish.finish, {})))
APPLIED = Pass()  # an operator that has no kernel here
PASSES = (TONE, EQUALIZE, BLUR, SHARPEN, CORRELATE, GRAIN, EDGES)


class Chain:
    """Draws views of `size` pixels from canvases.

    The operators are those that do not move pixels, in the order in which they act.
    """

    def __init__(self, operators: Sequence[Operator], size: int) -> None:
        self.size = size
        self.passes = _passes(operators)
        self.columns = {WARP: 0}
        self._width = resample.COLUMNS
        for each, operators_of in self.passes:
            if each is not APPLIED:
                for operator in operators_of.values():
                    self.columns[operator.name] = self._width
                    one = operator.sample(1, torch.Generator())
                    self._width += 1 + sum(part.shape[1] for part in _numbers(operator, one, 1))
        self.columns[END] = self._width
        self._width += 1

    def draw(self, canvases: Canvases, warp: Warp, record: Record, views_BCHW: Tensor) -> None:
        """Draw the views of canvases on the device into contiguous memory, float32 or bfloat16.

        Warp and record are on the CPU: of the first view of each canvas, then of the second.
        """
        device, count = canvases.device, len(views_BCHW)
        table_BN, drawn = self._table(canvases, warp, record)
        tiles = triton.cdiv(self.size**2, BLOCK)
        room = triton.next_power_of_2(tiles)
        arguments = {
            "values_T": canvases.values_T,
            "mean_BC": torch.empty(len(canvases), 3, device=device),
            "table": to_device(table_BN, device),
            "halves": torch.empty(2, count, 3, self.size, self.size, device=device),
            "sum_BCT": torch.empty(count, 3, room, device=device),
            "views": views_BCHW,
            "count": count,
            "canvases": len(canvases),
            "V": self.size,
            "WIDTH": self._width,
            "BLOCK": BLOCK,
            "TILES": room,
        }
        where = {
            name: (to_device(index, device), parameters)
            for name, (index, parameters) in drawn.items()
        }
        batch = FusedBatch(count, (count * tiles,), arguments, self.columns, where)
        batch.run(resample.canvas_means, (len(canvases),), AT=self.columns[WARP])
        batch.run(
            resample.warp,
            AT=self.columns[WARP],
            AT_JITTER=self._column(self.passes[0][1], "jitter"),
            BICUBIC=warp.bicubic,
        )
        for each, operators in self.passes:
            self._run(batch, each, operators)

    def _column(self, operators: dict[str, Operator], kernel: str) -> int:
        """Where the numbers of the operator of a pass with this kernel begin."""
        return self.columns[operators[kernel].name] if kernel in operators else ABSENT

    def _run(self, batch: FusedBatch, each: Pass, operators: dict[str, Operator]) -> None:
        """Treat those samples that drew an operator of a pass."""
        if each is APPLIED:
            images = batch.arguments["halves"].flatten(0, 1)
            for operator in operators.values():
                index, parameters = batch.drawn[operator.name]
                if len(index):
                    treated = operator.apply(images.index_select(0, index), parameters)
                    images.index_copy_(0, index, treated)
            return
        own: dict[str, Any] = {
            f"AT_{kernel.upper()}": self._column(operators, kernel) for kernel in each.kernels
        }
        own["AT"] = self.columns[END] if each is FINISH else own[f"AT_{each.kernels[0].upper()}"]
        if each is EQUALIZE:
            own["histogram_BCL"] = batch.arguments["table"].new_zeros(batch.count, 3, 256)
        if each is CORRELATE:
            blur = operators["motion_blur"]
            assert isinstance(blur, MotionBlur)
            own["T"] = blur.window
        for kernel, constants in each.launches:
            if kernel is not finish.sum_colors or "cut_out" in operators:
                grid = (3 * batch.count,) if kernel is color.make_tables else None
                batch.run(kernel, grid, **own, **constants)

    def _table(
        self, canvases: Canvases, warp: Warp, record: Record
    ) -> tuple[Tensor, dict[str, tuple[Tensor, Parameters]]]:
        """The rows of all samples, and what operators without a kernel are to be applied to."""
        count = len(warp.matrices_B33)
        table_BN = torch.empty(count, self._width, dtype=torch.int32)
        drawn: dict[str, tuple[Tensor, Parameters]] = {}
        shown = canvases[torch.arange(count) % len(canvases)]
        numbers = resample.columns(warp, shown, len(canvases), self.size)
        _write(table_BN, self.columns[WARP], numbers)
        half_B = torch.zeros(count, dtype=torch.int32)
        for each, operators in self.passes:
            for operator in operators.values():
                applied_B = record.applied(operator.name)
                parameters = record.parameters[operator.name]
                if each is APPLIED:
                    index = applied_B.nonzero()[:, 0]
                    own = {key: values[index] for key, values in parameters.items()}
                    drawn[operator.name] = index + count * half_B[index], own
                    continue
                place_B1 = torch.where(applied_B, half_B, UNTOUCHED.value)[:, None]
                numbers = _numbers(operator, parameters, count)
                _write(table_BN, self.columns[operator.name], [place_B1, *numbers])
                if each.moves:
                    half_B = half_B ^ applied_B
        table_BN[:, self.columns[END]] = half_B
        return table_BN, drawn


def _passes(operators: Sequence[Operator]) -> list[tuple[Pass, dict[str, Operator]]]:
    """The fewest passes, in order, that do these operators in theirs, with the operators of each.

    The operators are by the names of their kernels, or by their own where they have none.
    """
    last = len(operators)
    while last and _takes(FINISH, operators[last - 1 :]):
        last -= 1
    passes: list[tuple[Pass, list[Operator]]] = []
    for operator in operators[:last]:
        if passes and _takes(passes[-1][0], [*passes[-1][1], operator]):
            passes[-1][1].append(operator)
            continue
        kind = next((each for each in PASSES if _takes(each, [operator])), APPLIED)
        if operator.kernel == "jitter" and passes:
            kind = APPLIED
        passes.append((kind, [operator]))
    passes.append((FINISH, list(operators[last:])))
    return [(kind, {each.kernel or each.name: each for each in own}) for kind, own in passes]


def _takes(each: Pass, operators: Sequence[Operator]) -> bool:
    """Whether a pass does these operators, each once, in this order."""
    kernels = [operator.kernel for operator in operators]
    return kernels == [kernel for kernel in each.kernels if kernel in kernels]


def _numbers(operator: Operator, parameters: Parameters, count: int) -> list[Tensor]:
    """What the kernel of an operator takes of each sample, as columns."""
    return [part.reshape(count, -1) for part in operator.arguments(parameters)]


def _write(table_BN: Tensor, column: int, parts: Iterable[Tensor]) -> None:
    """Put numbers into rows, floating point ones by their bits."""
    for part in parts:
        width = part.shape[1]
        bits = part.float().view(torch.int32) if part.is_floating_point() else part
        table_BN[:, column : column + width] = bits
        column += width
