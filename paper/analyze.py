"""`python -m paper analyze`: measure what figures of the paper need, then `mast analyze`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mast.commands import analyze as of_runs
from mast.commands.common import command
from mast.core.arguments import as_list
from mast.core.display import say
from mast.core.errors import UserError
from mast.core.kinds import Device
from mast.core.run import RunFolder

MEASURED = ("linear", "embedding", "retained")


@command
def analyze(
    run: str | Path,
    data: str | Path | None = None,
    analyses: Sequence[str] | str = (),
    beside: Sequence[str | Path] | str | Path = (),
    images: int = 512,
    measure: bool = True,
    device: Device = "auto",
    seed: int = 0,
) -> of_runs.Insights:
    """Analyze a run as `mast analyze` does, with the figures of the paper.

    Args:
        run: A run folder.
        data: A labeled dataset with `train` and `test` (figures show test images, probes train on
            the others), or images alone, such as `flowers17/test`. Without images, only analyses
            that need none are made.
        analyses: Names of analyses (`python -m paper show analyses`); all by default.
        beside: Other run folders to show next to this one on the same images, such as VICReg's.
        images: Number of images to sample at random.
        measure: Whether to run the protocols linear, embedding and retained of `mast evaluate` on
            the labeled dataset if they have not been run yet.
        seed: Seed for sampling images and for the operators.

    Returns:
        One insight per analysis; if the run lacks what it needs, its text says what.
    """
    from mast.commands.analyze import parts_of
    from paper import analyses as figures
    from paper.measured import labelled, measure_missing

    figures.register()
    of_runs.registered(as_list(analyses))  # refuses an unknown name before anything is measured
    folder = RunFolder(run).require()
    if measure and data is not None and parts_of(str(data)):
        try:
            target_set = labelled(str(data), folder)
            measure_missing(folder, target_set, device, seed, MEASURED)
        except UserError as error:  # features that are not finite: the other analyses go on
            say(f"not measured: {error}", style="yellow")
    return of_runs.analyze(run, data, analyses, beside, images, device, seed)
