"""The operators of a view as a chain of kernels over a whole batch.

A table, not the shape of a launch, says which samples an operator treats: every step of a run
launches the same grids over all samples, and a program ends at once if its sample did not draw its
operator. So nothing waits for the device, and a CUDA graph can capture everything after the table,
unless an operator has no kernel here.

Legend: B samples, N columns of the table, C = 3 channels, V view pixels along an axis.
"""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from subprocess import CalledProcessError
from typing import Any, NamedTuple, TypeAlias

import torch
import triton
from torch import Tensor
from triton.errors import TritonError

from mast.augment.fused import operators as kernels
from mast.augment.fused import resample
from mast.augment.fused.rows import ABSENT, UNTOUCHED, Constants
from mast.augment.operator import Operator, Parameters, Record
from mast.augment.operators.filters import MotionBlur
from mast.augment.warp import Warp
from mast.core.canvases import Canvases
from mast.core.transfer import to_device

_log = logging.getLogger(__name__)

BLOCK = 256  # pixels of a program


def launch(kernel: Any, grid: tuple[int], arguments: dict[str, Any]) -> None:
    """Launch a kernel on the device of its tensors: all are launched here."""
    device = next(value.device for value in arguments.values() if isinstance(value, Tensor))
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[grid](**arguments)


@cache
def works_on(device: torch.device) -> bool:
    """Whether kernels can be built for a device, which takes a C compiler; warns if not."""
    arguments = {
        "values_T": torch.zeros(3, dtype=torch.uint8, device=device),
        # A row of zeros asks for no mean.
        "table": torch.zeros(1, resample.COLUMNS, dtype=torch.int32, device=device),
        "mean_BC": torch.empty(1, 3, device=device),
        "of": Constants(side=1, width=resample.COLUMNS, block=BLOCK, tiles=1, half=0),
    }
    try:
        launch(resample.canvas_means, (1,), arguments)
    except (RuntimeError, OSError, CalledProcessError, TritonError) as error:
        _log.warning(
            "views are drawn by PyTorch's kernels, which are several times slower, as Triton's "
            "cannot be built for %s: %s", device, error,
        )  # fmt: skip
        return False
    return True


class Pass(NamedTuple):
    """A sequence of operators, and the kernels to launch for it.

    Attributes:
        operators: The names of the operators' kernels, in the order in which they act; a chain may
            lack some of them.
        launches: Fused kernels.
        moves: Whether the samples that it treats end in the other half.
    """

    operators: tuple[str, ...] = ()
    launches: tuple[Any, ...] = ()
    moves: bool = False


# It has the jitter only right behind the warp, which computes the sums that the jitter needs.
TONE = Pass(("jitter", "grayscale", "invert", "posterize"), (kernels.tone,))
EQUALIZE = Pass(("equalize",), (kernels.count_levels, kernels.make_tables, kernels.look_up))
BLUR = Pass(("gaussian_blur",), (kernels.blur_along, kernels.blur_along))  # there and back
SHARPEN = Pass(("sharpen",), (kernels.sharpen,), moves=True)
CORRELATE = Pass(("motion_blur",), (kernels.correlate,), moves=True)
EDGES = Pass(("blend_edges",), (kernels.blend_edges,), moves=True)
GRAIN = Pass(("solarize", "add_noise"), (kernels.grain,))
# It ends every chain.
FINISH = Pass(("solarize", "add_noise", "cut_out"), (kernels.sum_colors, kernels.finish))
APPLIED = Pass()  # an operator that has no kernel here
PASSES = (TONE, EQUALIZE, BLUR, SHARPEN, CORRELATE, GRAIN, EDGES)
Passes: TypeAlias = list[tuple[Pass, list[Operator]]]  # with the operators of each


def draw_views(
    operators: Sequence[Operator], canvases: Canvases, warp: Warp, record: Record, views: Tensor
) -> None:
    """Draw views of canvases on the device into contiguous memory, float32 or bfloat16.

    Args:
        operators: Those that do not move pixels, in the order in which they act.
        canvases: The images.
        warp: On the CPU: the first views of all canvases, then the second views.
        record: In the same order.
        views: views_BCVV.
    """
    device, count, side = canvases.device, len(views), views.shape[3]
    passes = passes_of(operators)
    table_BN, columns, treated = _table(passes, canvases, warp, record, side)
    tiles = triton.cdiv(side**2, BLOCK)
    room, width = triton.next_power_of_2(tiles), table_BN.shape[1]
    arguments = {
        "values_T": canvases.values_T,
        "mean_BC": torch.empty(len(canvases), 3, device=device),
        "table": to_device(table_BN, device),
        "halves": torch.empty(count, 2, 3, side, side, device=device),
        "sum_BCT": torch.empty(count, 3, room, device=device),
        "views": views,
    }

    of = Constants(
        side=side, width=width, block=BLOCK, tiles=room, half=width - 1, bicubic=warp.bicubic,
        taps=next((each.window for each in operators if isinstance(each, MotionBlur)), 0),
    )  # fmt: skip

    def run(kernel: Any, of: Constants, programs: int = count * tiles) -> None:
        given = arguments | {"of": of}
        launch(kernel, (programs,), {name: given[name] for name in kernel.arg_names})

    run(resample.canvas_means, of, len(canvases))
    behind_warp = {each.kernel for each in passes[0][1]}
    run(resample.warp, replace(of, jitter=columns["jitter"] if "jitter" in behind_warp else ABSENT))
    for each, own in passes:
        if each is APPLIED:
            _apply(own[0], *treated[own[0].name], arguments["halves"].flatten(0, 1))
            continue
        if each is EQUALIZE:
            arguments["histogram_BCL"] = arguments["table"].new_zeros(count, 3, 256)
        at: dict[str, Any] = {str(one.kernel): columns[one.kernel] for one in own}
        for turn, kernel in enumerate(each.launches):
            if kernel is not kernels.sum_colors or "cut_out" in at:
                programs = 3 * count if kernel is kernels.make_tables else count * tiles
                run(kernel, replace(of, **at, back=each is BLUR and turn == 1), programs)


def _apply(
    operator: Operator, image_N: Tensor, parameters: Parameters, images_NCVV: Tensor
) -> None:
    """Apply an operator that has no kernel here to some images."""
    if len(image_N):
        index = to_device(image_N, images_NCVV.device)
        treated = operator.apply(images_NCVV.index_select(0, index), parameters)
        images_NCVV.index_copy_(0, index, treated)


def _table(
    passes: Passes, canvases: Canvases, warp: Warp, record: Record, side: int
) -> tuple[Tensor, dict[str | None, int], dict[str, tuple[Tensor, Parameters]]]:
    """A row for each sample, and where each kernel's numbers begin.

    Also, for each operator without a kernel, the images that it treats and its parameters.
    """
    count = len(warp.aligned_B)
    shown = canvases[torch.arange(count) % len(canvases)]
    parts = resample.columns(warp, shown, len(canvases), side)
    columns: dict[str | None, int] = {}
    treated: dict[str, tuple[Tensor, Parameters]] = {}
    width, half_B = resample.COLUMNS, torch.zeros(count, dtype=torch.int32)
    for each, operators in passes:
        for operator in operators:
            applied_B, drawn = record.applied(operator.name), record.parameters[operator.name]
            if each is APPLIED:
                index = applied_B.nonzero()[:, 0]
                parameters = {key: values[index] for key, values in drawn.items()}
                treated[operator.name] = 2 * index + half_B[index], parameters
                continue
            numbers = [part.reshape(count, -1) for part in operator.arguments(drawn)]
            columns[operator.kernel] = width
            width += 1 + sum(part.shape[1] for part in numbers)
            parts += [torch.where(applied_B, half_B, UNTOUCHED.value)[:, None], *numbers]
            if each.moves:
                half_B = half_B ^ applied_B
    bits = [
        part.float().view(torch.int32) if part.is_floating_point() else part.int()
        for part in (*parts, half_B[:, None])
    ]
    return torch.cat(bits, dim=1), columns, treated


def passes_of(operators: Sequence[Operator]) -> Passes:
    """The fewest passes that apply these operators in their order."""
    last = len(operators)
    while last and _takes(FINISH, operators[last - 1 :]):
        last -= 1
    passes: Passes = []
    for operator in operators[:last]:
        if passes and _takes(passes[-1][0], [*passes[-1][1], operator]):
            passes[-1][1].append(operator)
            continue
        kind = next((each for each in PASSES if _takes(each, [operator])), APPLIED)
        if operator.kernel == "jitter" and passes:
            kind = APPLIED
        passes.append((kind, [operator]))
    return [*passes, (FINISH, list(operators[last:]))]


def _takes(each: Pass, operators: Sequence[Operator]) -> bool:
    """Whether a pass applies these operators, each once, in this order."""
    names = [operator.kernel for operator in operators]
    return names == [name for name in each.operators if name in names]
