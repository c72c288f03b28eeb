"""Run protocols that are missing on a labeled set."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from mast.commands.analyze import parts_of
from mast.commands.evaluate import evaluate
from mast.config import read
from mast.core.errors import UserError
from mast.core.kinds import Device, EncoderLike
from mast.core.run import RunFolder
from mast.evaluation.labelled_sets import EvaluationData, tasks
from mast.evaluation.named_sets import NamedSets
from mast.evaluation.result import Result, results_in
from mast.models import load_encoder
from paper.protocols import register


@dataclass(frozen=True)
class LabelledSet:
    """A set that encoders can be measured on."""

    sets: NamedSets
    identity: str  # of its test images and their labels
    size: int | None = None  # of the views; None: results of any size do
    fingerprints: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


def labelled(data: str, folder: RunFolder) -> LabelledSet:
    """A set with labelled images to learn from and to test on, for a run."""
    parts, size = parts_of(data), read(folder.config).size
    if parts:
        sets = NamedSets(data)
        opened = sets.open(EvaluationData, size, model=load_encoder(folder.encoder))
        if opened.test.targets:
            known = {size: opened.fingerprints}
            return LabelledSet(sets, opened.images, fingerprints=known)
    raise UserError(f"{data} has no train and test images with labels, which this needs")


def labelled_parts(
    sets: NamedSets, size: int, seed: int, model: nn.Module | None = None
) -> LabelledSet:
    """Sets as `mast evaluate` takes them, for an encoder; the seed draws what is tested of a
    folder.
    """
    opened = sets.open(EvaluationData, size, seed, model)
    assert isinstance(opened, EvaluationData)
    tasks(opened, seed)  # which refuses sets without labels
    return LabelledSet(sets, opened.images, size, {size: opened.fingerprints})


def unmeasured(
    folder: RunFolder,
    target_set: LabelledSet,
    seed: int,
    protocols: Sequence[str],
    operators: Sequence[str] = (),
) -> list[str]:
    """Those of some protocols that were not run on a set's test images, with a seed.

    `operators` are what `retained` asks about, beside those of a run's views.
    """
    needed = set(operators_to_measure(folder, target_set, seed, operators))
    measured = set()
    for result in _measured(folder, target_set, seed):
        tried = result.settings.get("protocol", {}).get("operators")
        if result.protocol != "retained" or tried is None or needed <= set(tried):
            measured.add(result.protocol)
    return [name for name in protocols if name not in measured]


def operators_to_measure(
    folder: RunFolder, target_set: LabelledSet, seed: int, operators: Sequence[str]
) -> list[str]:
    """The operators of a run's views, those asked for, and those that `retained` has measured."""
    of_views = read(folder.config).preset.operators if folder.config.is_file() else ()
    measured_before = [
        name
        for result in _measured(folder, target_set, seed)
        if result.protocol == "retained"
        for name in result.settings.get("protocol", {}).get("operators") or ()
    ]
    return list(dict.fromkeys([*of_views, *operators, *measured_before]))


def _measured(folder: RunFolder, target_set: LabelledSet, seed: int) -> Iterator[Result]:
    """What was measured on a set with a seed."""
    for result in results_in(folder.path):
        size = result.settings.get("extraction", {}).get("size")
        drawn_by = result.settings.get("protocol", {}).get("seed")
        if (
            (result.images, drawn_by) == (target_set.identity, seed)
            and target_set.size in (None, size)
            and target_set.fingerprints.get(size, result.fingerprints) == result.fingerprints
        ):
            yield result


def measure_missing(
    folder: RunFolder,
    target_set: LabelledSet,
    device: Device,
    seed: int,
    protocols: Sequence[str],
    operators: Sequence[str] = (),
    encoder: EncoderLike | None = None,
    weights: str | Path | None = None,
    untrained: bool = False,
) -> None:
    """Probe a labelled set by the protocols that were not run on it before.

    `retained` measures some operators beside those of a run's views and those of before. A module
    is measured again each time, as its code may have changed where its weights have not; the
    encoder is the run of the folder if not given.
    """
    register()
    if isinstance(encoder, nn.Module):
        missing, changes = list(protocols), list(dict.fromkeys(operators))
    else:
        missing = unmeasured(folder, target_set, seed, protocols, operators)
        changes = operators_to_measure(folder, target_set, seed, operators)
    if missing:
        measured = folder.path if encoder is None else encoder
        evaluate(
            measured, target_set.sets, missing,
            {"retained": {"operators": changes}} if "retained" in missing else None,
            target_set.size, device, seed=seed, weights=weights, untrained=untrained,
        )  # fmt: skip
