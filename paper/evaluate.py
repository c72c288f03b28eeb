"""`mast evaluate` with the protocols of the paper."""

import functools
from typing import Any

from mast.commands import evaluate as command


@functools.wraps(command.evaluate)
def evaluate(*args: Any, **kwargs: Any) -> Any:
    """As `mast.evaluate`."""
    from paper.protocols import register

    register()
    return command.evaluate(*args, **kwargs)
