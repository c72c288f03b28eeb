"""Augmentation operators on batches: parameters for each sample, and a record of what was done."""

from mast.augment.color import ColorJitter, Equalize, Grayscale, Invert, Posterize, Solarize
from mast.augment.filters import (
    Cutout,
    GaussianBlur,
    MotionBlur,
    Sharpness,
    Sobel,
)
from mast.augment.geometry import (
    GeometricOperator,
    HorizontalFlip,
    RandomResizedCrop,
    Rotate,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    center_views,
)
from mast.augment.noise import GaussianNoise
from mast.augment.operator import Operator, Parameters, Stage
from mast.augment.pipeline import Pipeline
from mast.augment.presets import PRESETS, Preset
from mast.augment.record import Record, Views
from mast.augment.schedule import ScheduleConfig, compose_count, draw_chosen, draw_subsets

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

__all__ = [
    "OPERATORS",
    "PRESETS",
    "GeometricOperator",
    "Operator",
    "Parameters",
    "Pipeline",
    "Preset",
    "Record",
    "ScheduleConfig",
    "Stage",
    "Views",
    "center_views",
    "compose_count",
    "draw_chosen",
    "draw_subsets",
]
