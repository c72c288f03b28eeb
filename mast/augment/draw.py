"""Views as a pure function of a place in a run: the one way in which a batch of them is drawn.

Legend: B samples of this process, G samples of all processes, K operators.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mast.augment.pipeline import Pipeline
from mast.augment.record import Views
from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.seeds import stream


@entry()
def draw_views(
    pipeline: Pipeline,
    canvases: Sequence[tuple[Tensor, Tensor]],
    place: tuple[int, ...],
    choose: Callable[[int, torch.Generator], Tensor | None] | None = None,
    *,
    start: int = 0,
    total: int | None = None,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Views:
    """Draw the views of this process's part of a batch.

    What is applied is drawn for the batch of all processes and sliced, so that it does not depend
    on their number.

    Args:
        pipeline: Which views.
        canvases: canvas_BHWC, on the device where to draw, and aspect_B, best on the CPU; several
            where images come from sets whose canvases differ in side.
        place: Where in the run, such as (seed, step, part); other places give other views.
        choose: From G and a generator to chosen_GK, the operators that may act on each sample, or
            None for all; by default all may act.
        start: How many of the G samples come before those of this process.
        total: G; by default there is one process.
        out: Memory as from `Pipeline.buffer`, for canvases of one side; new by default.
        dtype: Of the views in new memory, float32 or bfloat16.

    Returns:
        Views of the B samples, in the order given.
    """
    assert out is None or len(canvases) == 1
    stop = start + sum(len(aspect_B) for _, aspect_B in canvases)
    count = stop - start if total is None else total
    if not canvases or not 0 <= start <= stop <= count:
        raise UserError(
            f"expected canvases, and 0 <= start <= total less their images, got {len(canvases)} "
            f"with {stop - start} images, start {start} and total {total}"
        )
    generator = stream(*place)
    chosen_GK = None if choose is None else choose(count, generator)
    records = tuple(record[start:stop] for record in pipeline.draw(count, generator, chosen_GK))
    parts: list[tuple[Tensor, ...]] = []
    first = 0
    for canvas_BHWC, aspect_B in canvases:
        some = slice(first, first + len(aspect_B))
        own = tuple(record[some] for record in records)
        memory = pipeline.buffer(len(aspect_B), canvas_BHWC.device, dtype) if out is None else out
        parts.append(pipeline.views(canvas_BHWC, aspect_B, own, memory).images)
        first = some.stop
    images = parts[0] if len(parts) == 1 else tuple(map(torch.cat, zip(*parts, strict=True)))
    chosen_BK = None if chosen_GK is None else chosen_GK[start:stop]
    aspect_B = torch.cat([aspect_B.cpu() for _, aspect_B in canvases])
    return Views(images, records, chosen_BK, aspect_B)
