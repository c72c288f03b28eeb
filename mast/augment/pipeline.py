"""The pipeline: draw every decision on the CPU, then apply it to a batch on any device.

Legend: B samples, K operators, C channels, H and W pixels. Images are in [0, 1].
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from mast.augment.operator import Operator, Record, Views, join
from mast.augment.operators import OPERATORS
from mast.augment.operators.geometry import GeometricOperator, compose
from mast.augment.presets import Preset
from mast.augment.warp import Warp, compiled, render
from mast.core.canvases import Canvases
from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.reading import RGB

Kernels: TypeAlias = Literal["PyTorch", "Numba", "Triton"]
TRITON = find_spec("triton") is not None
# numbers treated at a time
COMPILED_PART_VALUES = 2_400_000  # of a thread: a few images cost Python, many the cache
PART_VALUES = 1_600_000  # by PyTorch on a CPU: best of 0.1 to 100 million, by a fifth
GPU_PART_VALUES = 100_000_000  # of padded images, or of sheets


class Pipeline:
    """The views of a preset.

    Args:
        preset: Operators, and what each view has of its own.
        size: Side in pixels of the views that have none of their own.
        compiled: Whether to use kernels compiled for the device, a CPU or an NVIDIA GPU. Views
            agree to 1e-4 either way, but for values within rounding of a threshold.

    Attributes:
        names: The K operators.
        channels: C, of the images.
        sizes: Side of each view in pixels.
        operators: Of each view, by name.
    """

    @entry()
    def __init__(self, preset: Preset, size: int, compiled: bool = True) -> None:
        self.compiled = compiled
        self.names = preset.operators
        self.channels = preset.channels
        self.sizes = tuple(size if view.size is None else view.size for view in preset.views)
        self.operators = tuple(
            {name: OPERATORS[name](side, **view.overrides.get(name, {})) for name in self.names}
            for view, side in zip(preset.views, self.sizes, strict=True)
        )
        self._shares = tuple(view.shares for view in preset.views)
        self._geometry, self._pointwise = zip(*map(_in_order, self.operators), strict=True)
        self._alike_runs = _alike_runs(self.operators)

    @entry()
    def draw(
        self, n: int, generator: torch.Generator, allowed_BK: Tensor | None = None
    ) -> tuple[Record, ...]:
        """Draw operators and parameters for `n` samples; one record per view, on the CPU.

        The stream of random numbers depends on `n` and the preset alone, so a process of a
        distributed run draws for the global batch and slices its part. `allowed_BK` says which
        operators may act on a sample, in all views; by default all.
        """
        if allowed_BK is None:
            allowed_BK = torch.ones(n, len(self.names), dtype=torch.bool)
        records: list[Record] = []
        for operators, shares in zip(self.operators, self._shares, strict=True):
            coins, parameters = [], {}
            for name, operator in operators.items():
                coins.append(torch.rand(n, generator=generator) < operator.probability)
                parameters[name] = operator.sample(n, generator)
            record = Record(self.names, allowed_BK & torch.stack(coins, dim=1), parameters)
            records.append(record.sharing(records[0], shares) if records else record)
        return tuple(records)

    @entry()
    def views(
        self,
        canvases: Canvases,
        records: tuple[Record, ...],
        out: Tensor | None = None,
    ) -> Views:
        """Draw the pixels of all views; the same records give the same pixels.

        Args:
            canvases: Whole images, of as many channels; `Canvases.of` takes a tensor (B, H, W, 3).
            records: What `draw` returned, or a slice of each; on the CPU.
            out: Where the views go, as from `buffer`; by default new memory for float32.
        """
        count, device, aspect_B = len(canvases), canvases.device, canvases.aspect_B
        if (channels := canvases.layout.channels) != self.channels:
            raise UserError(
                f"these views are of {self.channels} channels, got images of {channels}"
            )
        memory = self.buffer(count, device) if out is None else out
        # Numba's kernels treat a few images at a time anyway
        one_by_one = [range(view, view + 1) for view in range(len(self.sizes))]
        images: list[Tensor] = []
        for run in one_by_one if self.compiled and device.type == "cpu" else self._alike_runs:
            size, total = self.sizes[run.start], len(run) * count
            span = slice(self._numbers(count, run.start), self._numbers(count, run.stop))
            images_BCHW = memory[span].view(total, self.channels, size, size)
            if count:
                # these may be those of an earlier batch: autograd must notice if it needs them
                torch.autograd.graph.increment_version(images_BCHW)
                record = join([records[view] for view in run])
                warp = compose(self._geometry[run.start], record, aspect_B.repeat(len(run)))
                self._fill(images_BCHW, canvases, warp, record, run.start)
            images += [images_BCHW[at * count : (at + 1) * count] for at in range(len(run))]
        return Views(tuple(images), records, aspect_B=aspect_B)

    def buffer(self, n: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
        """Memory for all views of `n` images, float32 or bfloat16, flat, one view after the other.

        A loop that draws every batch into one buffer spares a CPU the first touch of fresh memory,
        which takes longer than the crops do.
        """
        return torch.empty(self._numbers(n), dtype=dtype, device=device)

    def _numbers(self, n: int, views: int | None = None) -> int:
        """How many numbers the first views of `n` images have; by default all views."""
        return sum(n * self.channels * size**2 for size in self.sizes[:views])

    def _fill(
        self, images: Tensor, canvases: Canvases, warp: Warp, record: Record, view: int
    ) -> None:
        """Draw views (B, C, V, V) of equal operators by the fastest kernels of their device.

        There are fewer canvases than views where several views of each follow one another.
        """
        kernels = _fastest_kernels(images.device) if self.compiled else "PyTorch"
        layout, size, operators = canvases.layout, images.shape[3], self._pointwise[view]
        if kernels == "Triton" and layout == RGB:
            from mast.augment.fused import draw_views

            draw_views(operators, canvases, warp, record, images)
            return
        canvases = canvases[torch.arange(len(images)) % len(canvases)]
        threads = torch.get_num_threads() if kernels == "Numba" else 1
        part = min(_most_at_once(kernels, images, canvases), -(-len(images) // threads))
        draw = _geometry(kernels, canvases.apart(), warp.repeated(layout.sheets), size)
        steps = [_step(kernels, operator, record) for operator in operators]
        in_place = layout == RGB and images.dtype == torch.float32

        def fill(first: int) -> None:
            some = slice(first, min(first + part, len(images)))
            drawn = slice(layout.sheets * some.start, layout.sheets * some.stop)
            target, shape = images[some], (drawn.stop - drawn.start, 3, size, size)
            views = target if in_place else torch.empty(shape, device=images.device)
            draw(views, drawn)
            if layout != RGB:
                views = layout.joined(views.view(len(target), -1, size, size)).contiguous()
            for step in steps:
                views = step(views, some)
            if views is not target:
                target.copy_(views)

        with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
            list((pool.map if pool else map)(fill, range(0, len(images), part)))


def _geometry(
    kernels: Kernels, canvases: Canvases, warp: Warp, size: int
) -> Callable[[Tensor, slice], None]:
    """What draws some of the views into float32 memory, without operators."""
    if kernels == "Numba":
        draw = compiled(canvases, warp, size)
        return lambda views, some: draw(views.numpy(), some)
    if kernels == "PyTorch":
        return lambda views, some: render(canvases[some], warp[some], views)
    from mast.augment.fused import draw_views

    none = Record((), torch.empty(len(canvases), 0, dtype=torch.bool), {})
    return lambda views, some: draw_views((), canvases[some], warp[some], none[some], views)


def _step(
    kernels: Kernels, operator: Operator, record: Record
) -> Callable[[Tensor, slice], Tensor]:
    """What applies an operator to those of some views that drew it; others keep their bits."""
    applied_B, drawn = record.applied(operator.name), record.parameters[operator.name]
    in_place = operator.compiled(applied_B, drawn) if kernels == "Numba" else None

    def step(images_BCHW: Tensor, some: slice) -> Tensor:
        if in_place is not None:
            in_place(images_BCHW.numpy(), some)
            return images_BCHW
        index = applied_B[some].nonzero()[:, 0]
        if len(index) == 0:
            return images_BCHW
        parameters = {key: values[some][index] for key, values in drawn.items()}
        if len(index) == len(images_BCHW):
            return operator.apply(images_BCHW, parameters)
        device_index = index.to(images_BCHW.device, non_blocking=True)
        transformed = operator.apply(images_BCHW.index_select(0, device_index), parameters)
        return images_BCHW.index_copy_(0, device_index, transformed)

    return step


def _most_at_once(kernels: Kernels, images: Tensor, canvases: Canvases) -> int:
    """How many views fit the caches of a CPU, or the memory of a GPU, with their images padded."""
    of_view, of_image = (
        3 * canvases.layout.sheets * area
        for area in (images.shape[3] ** 2, int(canvases.size_B2.amax(0).prod()))
    )
    if kernels == "Numba":
        most = COMPILED_PART_VALUES // of_view
    else:
        most = GPU_PART_VALUES // (of_view if kernels == "Triton" else of_image)
        if images.device.type == "cpu":
            most = min(most, PART_VALUES // of_view)
    return max(1, most)


def _fastest_kernels(device: torch.device) -> Kernels:
    if is_fused(device):
        return "Triton"
    return "Numba" if device.type == "cpu" else "PyTorch"


def is_fused(device: torch.device) -> bool:
    """Whether Triton's kernels run on a device: an NVIDIA GPU of compute capability 8 or more."""
    if (
        not TRITON
        or device.type != "cuda"
        or torch.version.hip is not None
        or torch.cuda.get_device_capability(device) < (8, 0)
    ):
        return False
    from mast.augment.fused import works_on

    return works_on(device)


def _alike_runs(operators: Sequence[dict[str, Operator]]) -> list[range]:
    """Consecutive views of equal operators; how often they apply is in their records."""
    runs: list[range] = []
    for view, own in enumerate(operators):
        first = operators[runs[-1].start] if runs else {}
        if first and all(
            replace(first[name], probability=operator.probability) == operator
            for name, operator in own.items()
        ):
            runs[-1] = range(runs[-1].start, view + 1)
        else:
            runs.append(range(view, view + 1))
    return runs


def _in_order(
    operators: dict[str, Operator],
) -> tuple[list[GeometricOperator], list[Operator]]:
    """Those that move pixels and the rest, each in the order in which they act."""
    known = [operators[name] for name in OPERATORS if name in operators]
    geometry = [each for each in known if isinstance(each, GeometricOperator)]
    rest = [each for each in known if not isinstance(each, GeometricOperator)]
    return geometry, sorted(rest, key=lambda each: each.stage)


def difference(views: Views, name: str, device: torch.device | None = None) -> Tensor:
    """difference_BT: how an operator's effects on two views differ, from their record.

    In the operator's own units; NaN where no observer of both views could tell
    (`Operator.difference`). By default on the device of the views.
    """
    images_BCHW, aspect_B = views.images[0], views.aspect_B
    if aspect_B is None:
        aspect_B = torch.ones(len(images_BCHW))
    first_BT, second_BT = (  # 0 where the operator was not applied
        OPERATORS[name].effect(record.parameters[name], aspect_B).float()
        * record.applied(name)[:, None]
        for record in views.records
    )
    drawn_BT = OPERATORS[name].difference(first_BT - second_BT, views.records)
    return drawn_BT.to(images_BCHW.device if device is None else device, non_blocking=True)


def numbers(name: str) -> int:
    """T, how many numbers `difference` gives for an operator."""
    parameters = {name: OPERATORS[name](size=224).sample(1, torch.Generator())}
    record = Record((name,), torch.ones(1, 1, dtype=torch.bool), parameters)
    blank = torch.empty(1, 3, 0, 0)
    return difference(Views((blank, blank), (record, record)), name).shape[1]
