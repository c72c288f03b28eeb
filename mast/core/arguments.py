"""Arguments of public functions."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any


def as_list(argument: Any) -> list[Any]:
    """A list as it is; a single value, such as `analyses="masks"`, as a list of one."""
    single = isinstance(argument, str | Path) or not isinstance(argument, Iterable)
    return [argument] if single else list(argument)
