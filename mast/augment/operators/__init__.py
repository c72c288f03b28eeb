"""The operators: kernels and samplers, and the registry by whose order they act within a stage."""

from mast.augment.operator import Operator
from mast.augment.operators.color import (
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

OPERATORS: dict[str, type[Operator]] = {
    "random_resized_crop": RandomResizedCrop,
    "horizontal_flip": HorizontalFlip,
    "color_jitter": ColorJitter,
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

# What destroys a property of an image, by the property: these operators share a subspace.
PROPERTIES: dict[str, tuple[str, ...]] = {
    of_them: tuple(name for name, operator in OPERATORS.items() if operator.destroys == of_them)
    for of_them in dict.fromkeys(operator.destroys for operator in OPERATORS.values())
}
