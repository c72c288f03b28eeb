"""A registry row of a title and a class."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Kind_co = TypeVar("Kind_co", covariant=True)


@dataclass(frozen=True)
class Entry(Generic[Kind_co]):
    """A row of a registry: a title, and the class."""

    title: str
    kind: type[Kind_co]
