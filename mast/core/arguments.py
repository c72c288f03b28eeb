"""Arguments of public functions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def listed(given: Any) -> list[Any]:
    """One value where a list is meant, such as `analyses="masks"`, as a list of one."""
    one = isinstance(given, str | Path) or not isinstance(given, Sequence)
    return [given] if one else list(given)
