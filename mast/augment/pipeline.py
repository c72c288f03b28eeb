"""The pipeline: draw every decision on the CPU, then apply it to a batch on any device.

Legend: B samples, K operators, C channels, H and W pixels. Images are in [0, 1].
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mast.augment.operator import Operator, Record, Step, Views, join
from mast.augment.operators import OPERATORS
from mast.augment.operators.geometry import GeometricOperator, compose
from mast.augment.presets import Preset
from mast.augment.warp import Warp, compiled_steps, render
from mast.core.canvases import Canvases
from mast.core.entry import entry
from mast.core.errors import UserError, unknown
from mast.core.reading import RGB

if TYPE_CHECKING:
    from mast.augment.fused import Chain

TRITON = find_spec("triton") is not None
# numbers a thread treats at a time by compiled kernels: a few images cost Python, many the cache
COMPILED_PART_VALUES = 2_400_000
PADDED = 100_000_000  # numbers of padded images that a GPU without Triton treats at a time
SHEET_VALUES = 100_000_000  # numbers of sheets that a GPU treats at a time
PART_VALUES = 1_600_000  # numbers a CPU treats at a time: best of 0.1 to 100 million, by a fifth


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
        self._chains: dict[tuple[int | None, int], Chain] = {}

    @entry()
    def draw(
        self, n: int, generator: torch.Generator, allowed_BK: Tensor | None = None
    ) -> tuple[Record, ...]:
        """Decide what is applied to `n` samples; one record per view, on the CPU.

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
        numbers = self._numbers(count)
        if memory.shape != (numbers,) or not memory.is_contiguous() or memory.device != device:
            raise UserError(
                f"out: expected contiguous memory of shape {(numbers,)} on {device}, as from buffer"
            )
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
                geometry, aspects = self._geometry[run.start], aspect_B.repeat(len(run))
                warp = compose(geometry, record, aspects)
                self.fill(images_BCHW, canvases, warp, record, run.start)
            images += [images_BCHW[at * count : (at + 1) * count] for at in range(len(run))]
        return Views(tuple(images), records, aspect_B=aspect_B)

    @entry()
    def buffer(self, n: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
        """Memory for all views of `n` images, float32 or bfloat16, flat, one view after the other.

        A loop that draws every batch into one buffer spares a CPU the first touch of fresh memory,
        which takes longer than the crops do.
        """
        return torch.empty(self._numbers(n), dtype=dtype, device=device)

    def _numbers(self, n: int, views: int | None = None) -> int:
        """How many numbers the first views of `n` images have; by default all views."""
        return sum(n * self.channels * size**2 for size in self.sizes[:views])

    def fill(
        self, images: Tensor, canvases: Canvases, warp: Warp, record: Record, view: int
    ) -> None:
        """Draw views (B, C, V, V) of equal operators by the fastest kernels that their device has.

        There are fewer canvases than views where several views of each follow one another.
        """
        if canvases.layout == RGB:
            self._fill(images, canvases, warp, record, view)
            return
        count, size, sheets = len(images), images.shape[3], canvases.layout.sheets
        shown = canvases[torch.arange(count) % len(canvases)]
        most = SHEET_VALUES
        if canvases.device.type == "cpu":
            most = COMPILED_PART_VALUES * torch.get_num_threads()
        part = max(1, most // (3 * sheets * size**2))
        for start in range(0, count, part):
            some = slice(start, start + part)
            apart, drawn = shown[some].apart(), record[some]
            pictures = torch.empty(len(apart), 3, size, size, device=canvases.device)
            self._fill(pictures, apart, warp[some].repeated(sheets), drawn, None)
            joined = canvases.layout.joined(pictures.view(len(drawn), 3 * sheets, size, size))
            joined = joined.contiguous()
            if self.compiled and joined.device.type == "cpu":
                _run(_compiled(self._pointwise[view], drawn), joined)
            else:
                for operator in self._pointwise[view]:
                    joined = _apply_where(operator, joined, drawn)
            images[some] = joined

    def _fill(
        self, images: Tensor, canvases: Canvases, warp: Warp, record: Record, view: int | None
    ) -> None:
        """As `fill`, of pictures of three bytes a pixel; by no view no operator acts."""
        operators = [] if view is None else self._pointwise[view]
        device = canvases.device
        if self.compiled and device.type == "cpu":
            steps = compiled_steps(canvases, warp, images.shape[3])
            _run([*steps, *_compiled(operators, record)], images)
        elif self.compiled and _is_fused(device):
            self._fill_fused(images, canvases, warp, record, view)
        else:
            _fill_in_parts(images, canvases, warp, record, operators)

    def _fill_fused(
        self, images: Tensor, canvases: Canvases, warp: Warp, record: Record, view: int | None
    ) -> None:
        """By a few kernels over all images."""
        key = view, images.shape[3]
        if key not in self._chains:
            from mast.augment.fused import Chain

            operators = [] if view is None else self._pointwise[view]
            self._chains[key] = Chain(operators, images.shape[3])
        self._chains[key].draw(canvases, warp, record, images)


def _fill_in_parts(
    images: Tensor, canvases: Canvases, warp: Warp, record: Record, operators: Sequence[Operator]
) -> None:
    """By PyTorch, in parts: of a CPU they fit the caches, of a GPU the padded images."""
    count, size = len(images), images.shape[3]
    if count > len(canvases):
        canvases = canvases[torch.arange(count) % len(canvases)]
    part = PADDED // (3 * int(canvases.size_B2.amax(0).prod())) if count else 1
    if images.device.type == "cpu":
        part = min(part, PART_VALUES // (3 * size**2))
    for start in range(0, count, max(part, 1)):
        some = slice(start, start + max(part, 1))
        drawn = render(canvases[some], warp[some], size)
        for operator in operators:
            drawn = _apply_where(operator, drawn, record[some])
        images[some] = drawn


def _compiled(operators: Sequence[Operator], record: Record) -> list[Step]:
    """What applies operators in place, by compiled kernels where there are."""
    steps = []
    for operator in operators:
        index = record.applied(operator.name).nonzero()[:, 0]
        if len(index):
            drawn = record.parameters[operator.name]
            parameters = {key: values[index] for key, values in drawn.items()}
            steps.append(operator.compiled(index.numpy(), parameters))
    return steps


def _run(steps: Sequence[Step], images: Tensor) -> None:
    """Treat a few images at a time, while these are in a cache."""
    count, threads = len(images), torch.get_num_threads()
    in_float32 = images.dtype == torch.float32
    views = images if in_float32 else torch.empty_like(images, dtype=torch.float32)
    array = views.numpy()
    part = max(1, min(COMPILED_PART_VALUES // images[:1].numel(), -(-count // threads)))

    def run(first: int) -> None:
        for step in steps:
            step.run(array, first, first + part)

    if threads == 1 or part >= count:
        for first in range(0, count, part):
            run(first)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, range(0, count, part)))
    if not in_float32:
        images.copy_(views)


def has_triton(device: torch.device) -> bool:
    """Whether Triton's kernels run on a device: an NVIDIA GPU of compute capability 8 or more."""
    return (
        TRITON
        and device.type == "cuda"
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def _is_fused(device: torch.device) -> bool:
    if not has_triton(device):
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


def _apply_where(operator: Operator, images_BCHW: Tensor, record: Record) -> Tensor:
    """Apply an operator to the samples that drew it; the others keep their bits."""
    index = record.applied(operator.name).nonzero()[:, 0]
    if len(index) == 0:
        return images_BCHW
    drawn = record.parameters[operator.name]
    if len(index) == len(images_BCHW):
        return operator.apply(images_BCHW, drawn)
    device_index = index.to(images_BCHW.device, non_blocking=True)
    parameters = {key: values[index] for key, values in drawn.items()}
    transformed = operator.apply(images_BCHW.index_select(0, device_index), parameters)
    return images_BCHW.index_copy_(0, device_index, transformed)


@entry()
def difference(views: Views, name: str, device: torch.device | None = None) -> Tensor:
    """difference_BT: how an operator's effects on two views differ, from their record.

    In the operator's own units; NaN where no observer of both views could tell
    (`Operator.difference`). By default on the device of the views.
    """
    if name not in views.names:
        raise unknown("operator of these views", name, views.names)
    if len(views.records) != 2:
        raise UserError(f"a difference is between two views, got {len(views.records)}")
    images_BCHW, aspect_B = views.images[0], views.aspect_B
    if aspect_B is None:
        aspect_B = torch.ones(len(images_BCHW))
    first_BT, second_BT = (  # 0 where the operator was not applied
        OPERATORS[name].effect(record.parameters[name], aspect_B).float()
        * record.applied(name)[:, None]
        for record in views.records
    )
    drawn_BT = OPERATORS[name].difference(first_BT, second_BT, *views.records)
    return drawn_BT.to(images_BCHW.device if device is None else device, non_blocking=True)


@entry()
def numbers(name: str) -> int:
    """T, how many numbers `difference` gives for an operator."""
    parameters = {name: OPERATORS[name](size=224).sample(1, torch.Generator())}
    record = Record((name,), torch.ones(1, 1, dtype=torch.bool), parameters)
    blank = torch.empty(1, 3, 0, 0)
    return difference(Views((blank, blank), (record, record)), name).shape[1]


@entry()
def describe(record: Record, sample: int) -> str:
    """What was applied to a sample of a batch, in a line: "crop 0.42, flip, blur σ 0.8".

    The share of a crop is that of a square image.
    """
    single = record[sample : sample + 1]
    captions = [
        OPERATORS[name].caption(single.parameters[name])
        for k, name in enumerate(record.names)
        if single.applied_BK[0, k]
    ]
    return ", ".join(captions) or "unchanged"
