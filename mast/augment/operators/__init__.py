"""The operators: kernels and samplers, and the registry by whose order they act within a stage."""

from collections.abc import Sequence

from mast.augment.operator import Operator
from mast.augment.operators.color import (
    BandJitter,
    ColorJitter,
    Equalize,
    Grayscale,
    Invert,
    Posterize,
    Solarize,
)
from mast.augment.operators.filters import Cutout, GaussianBlur, MotionBlur, Sharpness, Sobel
from mast.augment.operators.geometry import (
    HorizontalFlip,
    RandomResizedCrop,
    Rotate,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
)
from mast.augment.operators.noise import GaussianNoise
from mast.core.arguments import as_list
from mast.core.errors import UserError, unknown

OPERATORS: dict[str, type[Operator]] = {
    "random_resized_crop": RandomResizedCrop,
    "horizontal_flip": HorizontalFlip,
    "color_jitter": ColorJitter,
    "band_jitter": BandJitter,
    "grayscale": Grayscale,
    "gaussian_blur": GaussianBlur,
    "shear_x": ShearX,
    "shear_y": ShearY,
    "translate_x": TranslateX,
    "translate_y": TranslateY,
    "rotate": Rotate,
    "invert": Invert,
    "sharpness": Sharpness,
    "gaussian_noise": GaussianNoise,
    "sobel": Sobel,
    "cutout": Cutout,
    "solarize": Solarize,
    "equalize": Equalize,
    "posterize": Posterize,
    "motion_blur": MotionBlur,
}


def operators_for(channels: int) -> tuple[str, ...]:
    """The operators for images of a number of channels."""
    return tuple(
        name
        for name, each in OPERATORS.items()
        if (each is not BandJitter if channels == 3 else not each.of_colors)
    )


def named_operators(chosen: str | Sequence[str] | None, among: Sequence[str]) -> list[str]:
    """The operators of `among` that are meant, each once.

    `chosen` names operators, or properties that stand for those that destroy them; "all" for all.
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
        elif destroying := [name for name in among if name in PROPERTIES[word]]:
            names += destroying
        else:
            raise UserError(f"none of the operators here destroys {word}: {', '.join(among)}")
    return list(dict.fromkeys(names))


# The operators that destroy a property of an image, by the property; none is an operator's name.
PROPERTIES: dict[str, tuple[str, ...]] = {
    destroyed: tuple(name for name, each in OPERATORS.items() if each.destroys == destroyed)
    for destroyed in dict.fromkeys(each.destroys for each in OPERATORS.values())
}
