"""What a classifier learned from and how well it does, in words: of what `mast fit` keeps of it."""

from collections.abc import Callable, Mapping
from typing import Any

from mast.measure.calibration import BINS

CHOSEN = {"penalty": "penalty", "encoder_lr": "learning rate of the encoder"}


def learned_from(about: Mapping[str, Any], called: Callable[[str], str] = str) -> str:
    """Which images, such as "all 680 images of photos".

    Args:
        called: What a set is called, from its name.
    """
    images = about["images"]
    sizes, name = images["sizes"], called(images["set"])
    count = f"{sum(sizes.values()):,}"
    if images["whole"]:
        return f"all {count} images of {name}"
    parts = " and ".join(f"{number:,} in {part}" for part, number in sizes.items())
    return f"{count} images of {name} ({parts})"


def what_is_told(about: Mapping[str, Any], classes: int) -> str:
    """What it tells, such as "17 classes", or "6 classes (target color)" by another target."""
    target = about["target"]
    return f"{classes} classes" + ("" if target == "class" else f" (target {target})")


def how_often_right(about: Mapping[str, Any]) -> str:
    """How often it is right, with the interval, and on which images."""
    held = about["validation"]
    chosen = " and ".join(CHOSEN[name] for name in held["chosen"])
    return (
        f"{held['top1']:.1f} % [{held['top1_low']:.1f}, {held['top1_high']:.1f}] on "
        f"{held['images']:,} held-out images ({held['held_out']})"
        + (f", on which the {chosen} was chosen, too" if chosen else "")
    )


def how_far_off(about: Mapping[str, Any]) -> str:
    """How far its probabilities are off, with the temperature and without, and which is worse."""
    errors = about["calibration"]
    after, before = (f"{errors[f'error_{when}']:.1f}" for when in ("after", "before"))
    worse = float(after) > float(before)
    return (
        f"off by {after} points on average with the temperature {errors['temperature']:.3g}, by "
        f"{before} without"
        + (": the temperature did not help on these images" if worse else "")
        + f" (expected calibration error on the held-out images, {BINS} bins)"
    )
