"""Each method's views as data: which operators, and what each of the two views changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mast.core.errors import UserError, unknown

Overrides: TypeAlias = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Preset:
    """The operators of a pair of views.

    Args:
        operators: Names from `OPERATORS`; their order is the order of K in every record.
        overrides: For each of the two views, operator name -> field -> value.
    """

    operators: tuple[str, ...]
    overrides: tuple[Overrides, Overrides] = field(default=({}, {}))

    def only(self, names: Sequence[str]) -> "Preset":
        """The same views of some of the operators, in the preset's order.

        Raises:
            UserError: There is none, or one that the preset does not have.
        """
        if not names:
            raise UserError("operators is empty: name at least one, or leave it out for all")
        for name in names:
            if name not in self.operators:
                raise unknown("operator of these views", name, self.operators)
        kept = tuple(name for name in self.operators if name in names)
        first, second = (
            {name: fields for name, fields in override.items() if name in kept}
            for override in self.overrides
        )
        return Preset(kept, (first, second))


MAST5 = (
    "random_resized_crop",
    "horizontal_flip",
    "color_jitter",
    "grayscale",
    "gaussian_blur",
)
MAST15 = (
    *MAST5,
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "invert",
    "sharpness",
    "gaussian_noise",
    "sobel",
    "cutout",
)
MAST19 = (*MAST15, "solarize", "equalize", "posterize", "motion_blur")

PRESETS = {
    "mast5": Preset(MAST5),
    "mast15": Preset(MAST15),
    "mast19": Preset(MAST19),
    # facebookresearch/vicreg, augmentations.py: asymmetric; a fixed threshold of 128 of 255
    "vicreg": Preset(
        (*MAST5, "solarize"),
        (
            {
                "gaussian_blur": {"probability": 1.0},
                "solarize": {"probability": 0.0, "threshold": (0.5, 0.5)},
            },
            {
                "gaussian_blur": {"probability": 0.1},
                "solarize": {"probability": 0.2, "threshold": (0.5, 0.5)},
            },
        ),
    ),
}
