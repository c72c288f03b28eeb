"""Types that signatures name without an import of what is heavy."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "float32", "bfloat16"]


class _Later(type):
    """A class of a module that need not be imported: before that, nothing is an instance of it."""

    def __instancecheck__(cls, instance: Any) -> bool:
        kind = getattr(sys.modules.get(cls.__module__), cls.__name__, None)
        return kind is not None and isinstance(instance, kind)


def later(module: str, name: str) -> Any:
    """What stands for a class in a signature until its module is imported."""
    return _Later(name, (), {"__module__": module})


if TYPE_CHECKING:
    from PIL.Image import Image

    PillowImage: TypeAlias = Image
    from torch.nn import Module
else:
    PillowImage = later("PIL.Image", "Image")
    Module = later("torch.nn.modules.module", "Module")

EncoderLike: TypeAlias = str | Path | Module
