"""`python -m paper report`: `mast report` with figures of the paper, and what studies found."""

import functools
from typing import Any

from mast.commands import report as of_page


@functools.wraps(of_page.report)
def report(*args: Any, **kwargs: Any) -> Any:
    """As `mast.report`."""
    from paper import analyses, studies

    analyses.register()
    studies.register()
    return of_page.report(*args, **kwargs)
