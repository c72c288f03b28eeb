"""What is drawn for a batch at a point of a run: the two stages, and the views themselves.

Legend: B samples of this process, G samples of all processes, K operators.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mast.augment.operator import Views
from mast.augment.pipeline import Pipeline
from mast.core.canvases import Canvases
from mast.core.entry import entry
from mast.core.seeds import stream


@dataclass
class ScheduleConfig:
    """How operators compose over a run.

    Attributes:
        staged: Two stages (MAST, section 3.2); otherwise every operator may act from the start, as
            in VICReg.
        stage1: Share of the run in which operators act one at a time.
        leave_out: Share of the pairs that randomly lose an operator once all act, so that
            training also sees each operator's absence.
    """

    staged: bool = True
    stage1: float = 0.5
    leave_out: float = 0.0


def compose_count(progress: float, count: int, stage1: float = 0.5) -> int:
    """How many of `count` operators are composed at this point of a run, from 1 to all of them.

    One at a time in stage 1, then linearly more. `progress` and `stage1` are shares of the run.
    """
    if progress < stage1 or stage1 == 1.0:
        return 1
    return round(1 + (count - 1) * (progress - stage1) / (1 - stage1))


def draw_subsets(n: int, count: int, compose: int, generator: torch.Generator) -> Tensor:
    """Draw which of `count` operators may act on each of `n` samples.

    Returns:
        allowed_BK: bool, exactly `compose` true in every row.
    """
    rank_BK = torch.rand(n, count, generator=generator).argsort(1).argsort(1)
    return rank_BK < compose


def draw_chosen(
    config: ScheduleConfig, count: int, progress: float, n: int, generator: torch.Generator
) -> Tensor | None:
    """Which of `count` operators may act on each of `n` samples at this point of a run.

    Returns:
        allowed_BK: bool, or None where all operators may act.
    """
    compose = compose_count(progress, count, config.stage1) if config.staged else count
    if compose < count:
        return draw_subsets(n, count, compose, generator)
    if config.leave_out == 0.0 or count == 1:
        return None
    kept_BK = draw_subsets(n, count, count - 1, generator)
    whole_B1 = torch.rand(n, 1, generator=generator) >= config.leave_out
    return kept_BK | whole_B1


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
        canvases: B whole images, on the device where to draw.
        place: Where in the run, such as (seed, step, part); other places give other views.
        choose: From G and a generator to allowed_GK, the operators that may act on each sample, or
            None for all; by default all may act.
        start: How many of the G samples come before those of this process.
        total: G; by default there is one process.
        out: Memory as from `Pipeline.buffer`; new by default.
        dtype: Of the views in new memory, float32 or bfloat16.
    """
    stop = start + len(canvases)
    count = stop - start if total is None else total
    generator = stream(*place)
    chosen_GK = None if choose is None else choose(count, generator)
    records = tuple(record[start:stop] for record in pipeline.draw(count, generator, chosen_GK))
    memory = pipeline.buffer(len(canvases), canvases.device, dtype) if out is None else out
    images = pipeline.views(canvases, records, memory).images
    return Views(images, records, canvases.aspect_B)
