"""Augmentation operators on batches: parameters for each sample, and a record of what was done."""

from mast.augment.central import center_views as center_views
from mast.augment.draw import ScheduleConfig as ScheduleConfig
from mast.augment.draw import draw_chosen as draw_chosen
from mast.augment.draw import draw_subsets as draw_subsets
from mast.augment.draw import draw_views as draw_views
from mast.augment.operator import SMALLEST as SMALLEST
from mast.augment.operator import Operator as Operator
from mast.augment.operator import Record as Record
from mast.augment.operator import Stage as Stage
from mast.augment.operator import Views as Views
from mast.augment.operators import OPERATORS as OPERATORS
from mast.augment.operators import PROPERTIES as PROPERTIES
from mast.augment.operators import named_operators as named_operators
from mast.augment.operators import operators_for as operators_for
from mast.augment.pipeline import Pipeline as Pipeline
from mast.augment.pipeline import difference as difference
from mast.augment.pipeline import numbers as numbers
from mast.augment.presets import PRESETS as PRESETS
from mast.augment.presets import Preset as Preset
from mast.augment.presets import View as View
from mast.core.canvases import Canvases as Canvases
