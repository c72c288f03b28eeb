"""Views of the paper's methods: which operators, and what each view changes."""

from mast.augment import Preset, View
from mast.augment.presets import MAST5, MAST19, MOCO, SIMCLR, Overrides, blurred_at, unequal

# valeoai/obow, datasets.py: the teacher sees the image (there the middle 7/8 of it), the student
# two crops and five patches without a blur (there they are cut from one view, on a grid, so that
# they share its colors and its flip).
UNCHANGED = View(
    {
        name: {"probability": 0.0}
        for name in ("random_resized_crop", "color_jitter", "grayscale", "gaussian_blur")
    }
)
CROPPED: Overrides = {**MOCO, "random_resized_crop": {"scale": (0.08, 0.6)}}
PATCH = View(
    {
        **MOCO,
        "random_resized_crop": {"scale": (0.084, 0.141)},  # (96 / 256)² of 0.6 to 1
        "gaussian_blur": {"probability": 0.0},
    },
    size=96,
)


def _drawn(draws: int, among: int) -> float:
    """How often one of RandAugment's operators acts: each draw acts in half of all cases."""
    return 1 - (1 - 0.5 / among) ** draws


# HobbitLong/PyContrast, datasets/util.py, "D": SimCLR's jitter, MoCo's crop, and two draws among
# RandAugment's 15 operators at magnitude 10, with a deviation of 0.5 downwards. What differs: every
# operator acts as often as there, but for itself, so that their number varies; they act in the
# order of this library, those of color behind the grayscale, which comes last there; shears,
# translations and rotations are of any strength up to the largest, where there nearly all have
# that; and autocontrast, solarize-add, and color, contrast and brightness, which act beside the
# jitter there, are left out.
TWO_DRAWN = {"probability": _drawn(draws=2, among=15)}
INFOMIN: Overrides = {
    **SIMCLR,
    "random_resized_crop": {"scale": (0.2, 1.0)},
    **dict.fromkeys(
        ("shear_x", "shear_y", "translate_x", "translate_y", "rotate", "invert", "equalize"),
        TWO_DRAWN,
    ),
    "sharpness": {**TWO_DRAWN, "factor": (1.8, 1.9)},
    "posterize": {**TWO_DRAWN, "bits": (3, 4)},
    # at magnitude 10 itself, which is half of the draws, nothing is solarized
    "solarize": {"probability": _drawn(draws=2, among=15) / 2, "threshold": (0.92, 1.0)},
}


def _with_a_jigsaw(size: int | None = None) -> Preset:
    """A query, its key, and an image to cut into pieces, only cropped and mirrored."""
    names = tuple(name for name in MAST19 if name in (*MAST5, *INFOMIN))
    idle = {name: {"probability": 0.0} for name in names}
    whole = {"random_resized_crop": {"scale": (0.6, 1.0)}, "horizontal_flip": {}}
    return Preset(names, (View(INFOMIN), View(INFOMIN), View({**idle, **whole}, size)))


# maple-research-lab/CLSA, data_processing/Multi_FixTransform.py: MoCo's views, the strong one with
# five draws among FixMatch's 14 operators, of which one does nothing, at magnitudes of 1 to 9 of
# 10. What differs: every operator acts as often as there, but for itself, in the order of this
# library; autocontrast is left out, and brightness, color and contrast beside those of the jitter.
FIVE_DRAWN = {"probability": _drawn(draws=5, among=14)}
STRONGER: Overrides = {
    "shear_x": {**FIVE_DRAWN, "shear": (-0.27, 0.27)},
    "shear_y": {**FIVE_DRAWN, "shear": (-0.27, 0.27)},
    "translate_x": {**FIVE_DRAWN, "shift": (-0.27, 0.27)},
    "translate_y": {**FIVE_DRAWN, "shift": (-0.27, 0.27)},
    "rotate": {**FIVE_DRAWN, "angle": (-27.0, 27.0)},
    "sharpness": {**FIVE_DRAWN, "factor": (0.14, 0.86)},
    "solarize": {**FIVE_DRAWN, "threshold": (0.1, 0.9)},
    "equalize": FIVE_DRAWN,
    "posterize": {**FIVE_DRAWN, "bits": (4, 7)},
}
WEAK = View({**MOCO, **{name: {"probability": 0.0} for name in STRONGER}})


def _with_a_strong_view(area: tuple[float, float], size: int | None = None) -> Preset:
    """A weak query, a weak key and a strong query, whose crop has such a share of the area."""
    blur = blurred_at(size) if size else {}
    strong = View({**MOCO, **STRONGER, **blur, "random_resized_crop": {"scale": area}}, size)
    return Preset((*MAST5, *STRONGER), (WEAK, WEAK, strong))


# LooC's query and an independent view, then two that share the query's color and its orientation.
SHARED = (("color_jitter", "grayscale"), ("horizontal_flip",))
PRESETS = {
    # facebookresearch/moco-v3, main_moco.py, and the --crop-min of its commands for a ResNet-50
    "moco_v3": Preset((*MAST5, "solarize"), unequal({"scale": (0.2, 1.0)})),
    "infomin": _with_a_jigsaw(size=255),
    "infomin_small": _with_a_jigsaw(),
    "clsa": _with_a_strong_view((0.086, 0.429), size=96),
    "clsa_small": _with_a_strong_view((0.2, 1.0)),
    "obow": Preset(
        MAST5, (UNCHANGED, *[View({**CROPPED, **blurred_at(160)}, size=160)] * 2, *[PATCH] * 5)
    ),
    "obow_small": Preset(MAST5, (UNCHANGED, View(CROPPED))),
    "looc": Preset(MAST5, (View(), View(), *(View(shares=names) for names in SHARED))),
}
