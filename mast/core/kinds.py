"""Types for signatures, without heavy imports."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "float32", "bfloat16"]


class _Later(type):
    """Stands for a class of a module not yet imported; until then, nothing is an instance."""

    def __instancecheck__(cls, instance: Any) -> bool:
        kind = getattr(sys.modules.get(cls.__module__), cls.__name__, None)
        return kind is not None and isinstance(instance, kind)


def later(module: str, name: str) -> Any:
    """A placeholder for a class in a signature until its module is imported."""
    return _Later(name, (), {"__module__": module})


if TYPE_CHECKING:
    from PIL.Image import Image

    PillowImage: TypeAlias = Image
    from torch.nn import Module
else:
    PillowImage = later("PIL.Image", "Image")
    Module = later("torch.nn.modules.module", "Module")

EncoderLike: TypeAlias = str | Path | Module
