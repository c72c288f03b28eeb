"""The operators: kernels and samplers, and the registry by whose order they act within a stage."""

from collections.abc import Sequence

from mast.augment.operator import Operator
from mast.augment.operators import color, filters, geometry, noise
from mast.core.arguments import as_list
from mast.core.errors import UserError, unknown

OPERATORS: dict[str, type[Operator]] = {
    kind.name: kind
    for kind in (
        *(geometry.RandomResizedCrop, geometry.HorizontalFlip),
        *(color.ColorJitter, color.BandJitter, color.Grayscale),
        filters.GaussianBlur,
        *(geometry.ShearX, geometry.ShearY, geometry.TranslateX, geometry.TranslateY),
        *(geometry.Rotate, color.Invert, filters.Sharpness, noise.GaussianNoise),
        *(filters.Sobel, filters.Cutout, color.Solarize, color.Equalize, color.Posterize),
        filters.MotionBlur,
    )
}


def operators_for(channels: int) -> tuple[str, ...]:
    """The operators for images of a number of channels."""
    return tuple(
        name
        for name, each in OPERATORS.items()
        if (each is not color.BandJitter if channels == 3 else not each.of_colors)
    )


def named_operators(chosen: str | Sequence[str] | None, among: Sequence[str]) -> list[str]:
    """The operators of `among` that are meant, each once.

    `chosen` names operators, or properties that stand for those that change them; "all" for all.
    """
    names: list[str] = []
    for written in as_list(chosen or ()):
        word = str(written).replace("colour", "color")
        if word == "all":
            names += among
        elif word in OPERATORS:
            names.append(word)
        elif word not in PROPERTIES:
            raise unknown("operator or property", word, (*PROPERTIES, "all", *among))
        elif changing := [name for name in among if name in PROPERTIES[word]]:
            names += changing
        else:
            raise UserError(f"none of the operators here changes {word}: {', '.join(among)}")
    return list(dict.fromkeys(names))


# The operators that change a property of an image, by the property; none is an operator's name.
PROPERTIES: dict[str, tuple[str, ...]] = {
    changed: tuple(name for name, each in OPERATORS.items() if each.changes == changed)
    for changed in dict.fromkeys(each.changes for each in OPERATORS.values())
}
