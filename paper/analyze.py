"""`mast analyze` and `mast report` with the figures of the paper."""

import functools
from typing import Any

from mast.commands import analyze as of_analyses
from mast.commands import report as of_page


@functools.wraps(of_analyses.analyze)
def analyze(*args: Any, **kwargs: Any) -> Any:
    """As `mast.analyze`."""
    from paper.analyses import register

    register()
    return of_analyses.analyze(*args, **kwargs)


@functools.wraps(of_page.report)
def report(*args: Any, **kwargs: Any) -> Any:
    """As `mast.report`, with what studies found."""
    from paper import analyses, studies

    analyses.register()
    studies.register()
    return of_page.report(*args, **kwargs)
