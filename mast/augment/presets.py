"""Each method's views as data: which operators, and what each view changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

from mast.augment.operators import OPERATORS
from mast.core.arguments import check_fields
from mast.core.errors import UserError, unknown

Overrides: TypeAlias = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class View:
    """Settings of one view of a preset.

    Args:
        overrides: Operator name -> field -> value.
        size: Side in pixels; by default that of the run.
        shares: Operators whose decisions are those of the first view.
    """

    overrides: Overrides = field(default_factory=dict)
    size: int | None = None
    shares: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Preset:
    """The operators of the views of an image.

    Args:
        operators: Names from `OPERATORS`; their order is the order of K in every record.
        views: Any number; by default two equal ones.
        channels: Of the images.
    """

    operators: tuple[str, ...]
    views: tuple[View, ...] = (View(), View())
    channels: int = 3

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.operators:
            if name not in OPERATORS:
                raise unknown("operator", name, OPERATORS)
        for view in self.views:
            for name in (*view.shares, *view.overrides):
                if name not in self.operators:
                    raise unknown("operator of these views", name, self.operators)
            for name, overrides in view.overrides.items():
                known = [field.name for field in fields(OPERATORS[name]) if field.name != "size"]
                for field_name in overrides:
                    if field_name not in known:
                        raise unknown(f"field of {name}", field_name, known)
            if view.shares and view.size != self.views[0].size:
                raise UserError("a view shares decisions with the first only if both have one size")

    def only(self, names: Sequence[str]) -> "Preset":
        """The same views of some of the operators, in the preset's order."""
        if not names:
            raise UserError("operators is empty: name at least one, or leave it out for all")
        for name in names:
            if name not in self.operators:
                raise unknown("operator of these views", name, self.operators)
        return self._renamed({name: name for name in self.operators if name in names})

    def of_channels(self, channels: int) -> "Preset":
        """The same views of images of 1 to 16 channels.

        `color_jitter` becomes `band_jitter` of the same brightness and contrast; what else needs
        colors is left out.
        """
        if channels == self.channels:
            return self
        names = {
            name: "band_jitter" if name == "color_jitter" else name
            for name in self.operators
            if name == "color_jitter" or not OPERATORS[name].of_colors
        }
        return replace(self._renamed(names), channels=channels)

    def _renamed(self, names: Mapping[str, str]) -> "Preset":
        """Some of the operators, by the names that they have then."""
        views = []
        for view in self.views:
            overrides = {}
            for name, new in names.items():
                if name in view.overrides:  # another operator may lack some fields
                    known = {field.name for field in fields(OPERATORS[new])}
                    own = view.overrides[name].items()
                    overrides[new] = {field: value for field, value in own if field in known}
            shares = tuple(new for name, new in names.items() if name in view.shares)
            views.append(View(overrides, view.size, shares))
        return replace(self, operators=tuple(names.values()), views=tuple(views))


MAST5 = ("random_resized_crop", "horizontal_flip", "color_jitter", "grayscale", "gaussian_blur")
MAST15 = (
    *(*MAST5, "shear_x", "shear_y", "translate_x", "translate_y", "rotate"),
    *("invert", "sharpness", "gaussian_noise", "sobel", "cutout"),
)
MAST19 = (*MAST15, "solarize", "equalize", "posterize", "motion_blur")

# Jitters of official codes; those of BYOL, Barlow Twins, MoCo v3 and DINO are VICReg's.
SIMCLR: Overrides = {
    "color_jitter": {"brightness": 0.8, "contrast": 0.8, "saturation": 0.8, "hue": 0.2}
}
MOCO: Overrides = {
    "random_resized_crop": {"scale": (0.2, 1.0)},
    "color_jitter": {"saturation": 0.4},
}


def blurred_at(size: int) -> Overrides:
    """Blurs of as many pixels, 0.1 to 2, as at the side of 224, whose filter is as wide."""
    scale = 224 / size
    return {"gaussian_blur": {"sigma": (0.1 * scale, 2.0 * scale), "extent": 0.1 * scale}}


# facebookresearch/swav: two large crops and six small ones
LARGE = View({**SIMCLR, "random_resized_crop": {"scale": (0.14, 1.0)}})
SMALL = View({**SIMCLR, **blurred_at(96), "random_resized_crop": {"scale": (0.05, 0.14)}}, size=96)
# rbalestr-lab/lejepa: two large crops and six small ones
LEJEPA: Overrides = {"solarize": {"probability": 0.2, "threshold": (0.5, 0.5)}}
LEJEPA_LARGE = View({**LEJEPA, "random_resized_crop": {"scale": (0.3, 1.0)}})
LEJEPA_SMALL = View(
    {**LEJEPA, **blurred_at(98), "random_resized_crop": {"scale": (0.05, 0.3)}}, size=98
)
DINO_SMALL = View(
    {
        **blurred_at(96),
        "random_resized_crop": {"scale": (0.05, 0.4), "bicubic": True},
        "solarize": {"probability": 0.0},
    },
    size=96,
)


def unequal(crop: dict[str, Any]) -> tuple[View, View]:
    """One view always blurred, one seldom and sometimes solarized at 128 of 255, as in BYOL."""
    threshold = (0.5, 0.5)
    drawn = ((1.0, 0.0), (0.1, 0.2))
    first, second = (
        View(
            {
                "random_resized_crop": crop,
                "gaussian_blur": {"probability": blurred},
                "solarize": {"probability": solarized, "threshold": threshold},
            }
        )
        for blurred, solarized in drawn
    )
    return first, second


# For generated images such as `toys`: two views of an image differ in one factor above all, and in
# color: where they share it, a small encoder learns little else. The crop is mild where position
# should be preserved; magnitudes in pixels are of a view of 224.
CROP: Overrides = {"random_resized_crop": {"scale": (0.6, 1.0)}}
COLOR: Overrides = {
    "color_jitter": {"probability": 0.9, "saturation": 0.4, "hue": 0.5},
    "grayscale": {"probability": 0.4},
}
# Without the flip: between a view and a mirrored one no angle can be known.
ORIENTATION: Overrides = {"rotate": {"probability": 1.0, "angle": (-180.0, 180.0)}}
POSITION: Overrides = {
    "random_resized_crop": {"scale": (0.4, 1.0)},
    "translate_x": {"probability": 1.0},
    "translate_y": {"probability": 1.0},
}
LESS_COLOR: Overrides = {  # so that some of it stays
    "color_jitter": {"probability": 0.8, "saturation": 0.4, "hue": 0.3},
    "grayscale": {"probability": 0.1},
}
SHARPNESS: Overrides = {"gaussian_blur": {"probability": 0.9, "sigma": (0.1, 16.0), "extent": 0.4}}


def _forgetting(*parts: Overrides) -> Preset:
    """Twice one view: a mild crop, color destroyed, and these; of two values the later counts."""
    overrides = {name: value for part in (CROP, COLOR, *parts) for name, value in part.items()}
    view = View({name: overrides[name] for name in MAST19 if name in overrides})
    return Preset(tuple(view.overrides), (view, view))


PRESETS = {
    "mast5": Preset(MAST5),
    "mast15": Preset(MAST15),
    "mast19": Preset(MAST19),
    # facebookresearch/vicreg, augmentations.py
    "vicreg": Preset((*MAST5, "solarize"), unequal({"bicubic": True})),
    # facebookresearch/dino, main_dino.py, by default
    "dino": Preset(
        (*MAST5, "solarize"),
        (*unequal({"scale": (0.4, 1.0), "bicubic": True}), *[DINO_SMALL] * 8),
    ),
    # the same without small views, for which that code recommends wider crops
    "dino_small": Preset((*MAST5, "solarize"), unequal({"scale": (0.14, 1.0), "bicubic": True})),
    "lejepa": Preset((*MAST5, "solarize"), (LEJEPA_LARGE, LEJEPA_LARGE, *[LEJEPA_SMALL] * 6)),
    "simclr": Preset(MAST5, (View(SIMCLR), View(SIMCLR))),
    "moco": Preset(MAST5, (View(MOCO), View(MOCO))),
    "mae": Preset(
        ("random_resized_crop", "horizontal_flip"),
        (View({"random_resized_crop": {"scale": (0.2, 1.0), "bicubic": True}}),),
    ),
    "multicrop": Preset(MAST5, (LARGE, LARGE, *[SMALL] * 6)),
    "forget_color": _forgetting(),
    "forget_some_color": _forgetting(LESS_COLOR),
    "forget_orientation": _forgetting(ORIENTATION),
    "forget_position": _forgetting(POSITION),
    "forget_sharpness": _forgetting(SHARPNESS),
    "forget_all": _forgetting(ORIENTATION, POSITION, SHARPNESS),
}
