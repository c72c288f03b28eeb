"""Write a run's page."""

from collections.abc import Sequence
from pathlib import Path

from mast.commands.common import command
from mast.core.arguments import as_list
from mast.core.errors import UserError
from mast.core.files import out_file
from mast.core.run import RunFolder
from mast.page import is_page, write_page
from mast.studies import QUESTIONS


@command
def report(
    run: str | Path, beside: str | Path | Sequence[str | Path] = (), out: str | Path | None = None
) -> Path:
    """Write a run's page: the verdict first, then its figures; it needs no network and no scripts.

    Args:
        run: A run folder; what `mast evaluate` and `mast analyze` wrote there is shown.
        beside: Other folders whose evaluations are shown beside this one's, such as VICReg's or,
            of an encoder that is no run, `runs/resnet18-random-0`; those of what it started as are
            too, where `mast evaluate --untrained` measured it.
        out: The page, ending in .html; `report.html` in the run folder if not given.

    Returns:
        The file, below 10 MB.
    """
    folder = RunFolder(run)
    if folder.evaluations.is_dir() and not folder.config.is_file():
        raise UserError(
            f"{run} has the evaluations of an encoder that is no run, and the page is of a run: "
            f"name one, with beside {run}, or see `mast compare`"
        )
    folder.require()
    page = out_file(folder.path / "report.html" if out is None else out, {".html": is_page})
    return write_page(folder, [Path(other) for other in as_list(beside)], QUESTIONS, page)
