"""Write a run's page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mast.commands.common import command
from mast.core.arguments import as_list
from mast.core.files import out_file
from mast.core.run import RunFolder


@command
def report(
    run: str | Path, beside: str | Path | Sequence[str | Path] = (), out: str | Path | None = None
) -> Path:
    """Write a run's report as one HTML page, verdict first, without scripts or external files.

    Args:
        run: A run folder with results of `mast evaluate` and `mast analyze`.
        beside: Other folders to compare with, such as VICReg's run or `runs/resnet18-random-0`; the
            run's starting weights are added if `mast evaluate --untrained` measured them.
        out: The page, ending in .html; by default `report.html` in the run folder.

    Returns:
        The file.
    """
    folder = RunFolder(run).require()
    from mast.analyses import ANALYSES
    from mast.page import is_page
    from mast.page.page import write_report

    page = out_file(folder.path / "report.html" if out is None else out, {".html": is_page})
    return write_report(folder, [Path(other) for other in as_list(beside)], ANALYSES, page)
