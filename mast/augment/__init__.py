"""Augmentation operators on batches: parameters for each sample, and a record of what was done."""

from mast.augment.central import center_views
from mast.augment.draw import ScheduleConfig, draw_chosen, draw_subsets, draw_views
from mast.augment.operator import SMALLEST, Operator, Parameters, Record, Stage, Views
from mast.augment.operators import OPERATORS, PROPERTIES, named_operators, operators_for
from mast.augment.operators.geometry import GeometricOperator
from mast.augment.pipeline import Pipeline, describe, difference, numbers
from mast.augment.presets import PRESETS, Preset, View
from mast.core.canvases import Canvases

__all__ = [
    "OPERATORS",
    "PRESETS",
    "PROPERTIES",
    "SMALLEST",
    "Canvases",
    "GeometricOperator",
    "Operator",
    "Parameters",
    "Pipeline",
    "Preset",
    "Record",
    "ScheduleConfig",
    "Stage",
    "View",
    "Views",
    "center_views",
    "describe",
    "difference",
    "draw_chosen",
    "draw_subsets",
    "draw_views",
    "named_operators",
    "numbers",
    "operators_for",
]
