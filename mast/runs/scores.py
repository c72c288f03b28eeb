"""What was measured of a run, and what is missing."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mast.analyses import Score
from mast.config import read
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.data import describe, open_canvas
from mast.measure.result import ENDS, Result, readable
from mast.measure.sets import image_identity
from mast.protocols import Retained


def parts_of(data: str) -> dict[str, str]:
    """Train, val and test of a set that has both train and test; empty for images alone."""
    if "@" in data or "+" in data:
        return {}
    parts = describe(data).parts
    return dict(parts) if {"train", "test"} <= parts.keys() else {}


@dataclass(frozen=True)
class LabelledSet:
    """A set that runs can be measured on.

    Attributes:
        data: The set.
        identity: Of its test images and their labels.
    """

    data: str
    identity: str


def labelled(data: str, folder: RunFolder) -> LabelledSet:
    """A set with labelled images to learn from and to test on, for a run.

    Raises:
        UserError: It has no train or no test images, or no labels.
    """
    parts, size = parts_of(data), read(folder.config).size
    if parts and (canvases := open_canvas(parts["test"], size)).targets:
        return LabelledSet(data, image_identity(canvases))
    raise UserError(f"{data} has no train and test images with labels, which this needs")


def unmeasured(
    folder: RunFolder,
    target_set: LabelledSet,
    seed: int,
    protocols: Sequence[str],
    operators: Sequence[str] = (),
) -> list[str]:
    """Those of some protocols that were not run on a set's test images.

    Args:
        folder: Of the run.
        target_set: The set.
        seed: Of the protocols.
        protocols: Names.
        operators: What `retained` asks about, beside those of the run's views.
    """
    needed = set(operators_to_measure(folder, target_set, seed, operators))
    measured = set()
    for result in _measured(folder, target_set, seed):
        settings = result.settings["protocol"]
        # The analyses say of `retained` that it changes half of the images.
        usual_share = settings.get("share", Retained.share) == Retained.share
        if usual_share and needed <= set(settings.get("operators", needed)):
            measured.add(result.protocol)
    return [name for name in protocols if name not in measured]


def operators_to_measure(
    folder: RunFolder, target_set: LabelledSet, seed: int, operators: Sequence[str]
) -> list[str]:
    """The operators of the run's views, those asked for, and those that `retained` has measured."""
    measured_before = [
        name
        for result in _measured(folder, target_set, seed)
        for name in result.settings["protocol"].get("operators", ())
    ]
    return list(
        dict.fromkeys([*read(folder.config).preset.operators, *operators, *measured_before])
    )


def _measured(folder: RunFolder, target_set: LabelledSet, seed: int) -> Iterator[Result]:
    """What was measured on a set with a seed."""
    for result in results_of(folder):
        if result.images == target_set.identity and result.settings["protocol"]["seed"] == seed:
            yield result


def results_of(folder: RunFolder) -> Iterator[Result]:
    """The results in a run folder."""
    for file in sorted(folder.evaluations.glob("*.json")):
        yield Result.read(file)


def scores_of(
    folder: RunFolder, accept: Callable[[Result], bool] = lambda _: True
) -> Iterator[Score]:
    """The scores of a run.

    Args:
        folder: Of the run.
        accept: Which results to take; all by default.
    """
    results = list(results_of(folder))
    sets = {result.set_name for result in results}
    names = Counter(map(readable, sets))
    for result in filter(accept, results):
        short_name = readable(result.set_name)
        name = short_name if names[short_name] == 1 else result.set_name  # two sets that end alike
        for target, measured in result.targets.items():
            for measure, value in measured.values.items():
                if not measure.endswith(ENDS):
                    low, high = (measured.values.get(f"{measure}{end}") for end in ENDS)
                    yield Score(result.protocol, name, target, measure, value, low, high)
