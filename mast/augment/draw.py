"""Views as a pure function of a place in a run: the one way in which a batch of them is drawn.

Legend: B samples of this process, G samples of all processes, K operators.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from mast.augment.pipeline import Pipeline
from mast.augment.record import Views
from mast.core.canvases import Canvases
from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.seeds import stream


@entry()
def draw_views(
    pipeline: Pipeline,
    canvases: Canvases,
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
        canvases: B whole images, on the device where to draw.
        place: Where in the run, such as (seed, step, part); other places give other views.
        choose: From G and a generator to chosen_GK, the operators that may act on each sample, or
            None for all; by default all may act.
        start: How many of the G samples come before those of this process.
        total: G; by default there is one process.
        out: Memory as from `Pipeline.buffer`; new by default.
        dtype: Of the views in new memory, float32 or bfloat16.

    Returns:
        Views of the B samples, in the order given.
    """
    stop = start + len(canvases)
    count = stop - start if total is None else total
    if not 0 <= start <= stop <= count:
        raise UserError(
            f"expected 0 <= start <= total less the {len(canvases)} images, got start {start} and "
            f"total {total}"
        )
    generator = stream(*place)
    chosen_GK = None if choose is None else choose(count, generator)
    records = tuple(record[start:stop] for record in pipeline.draw(count, generator, chosen_GK))
    memory = pipeline.buffer(len(canvases), canvases.device, dtype) if out is None else out
    images = pipeline.views(canvases, records, memory).images
    allowed_BK = None if chosen_GK is None else chosen_GK[start:stop]
    return Views(images, records, allowed_BK, canvases.aspect_B)
