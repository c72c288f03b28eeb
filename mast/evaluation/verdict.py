"""Whether pretraining helped: a run beside the encoder that it started as, and beside others.

A rule says what is quoted, so that no outcome can choose it: every accuracy of `QUOTED` that two
encoders both have, on all sets whose test images both were measured on, after learning from as many
images. Those that differ come first, the largest before the others. Of several targets of a set it
is the mean, and of several sets the mean in which all count alike. Of results whose test images
overlap, such as those of a folder that was split by several seeds, one is quoted: of the whole set
before one of a part, then the lowest seed.
"""

from __future__ import annotations

import math
import os
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mast.core.errors import UserError
from mast.core.files import as_word
from mast.core.run import RunFolder
from mast.data import Factors, Toys, describe
from mast.data.generated import SPLITS
from mast.evaluation.paired import Difference, difference, of_changed_images
from mast.evaluation.result import ACCURACIES, Result, readable
from mast.models import BASELINE, BASELINE_SIZE

Results = Mapping[tuple[str, str], Result]  # of a run, by protocol and tested images

QUOTED = {
    "linear": "linear accuracy",
    "knn": "kNN accuracy",
    "linear_sgd": "linear accuracy by SGD",
    "semi": "accuracy by few labels",
    "finetune": "fine-tuned accuracy",
}
STARTED_FROM = "the encoder that it started from"
NAMED = 3  # sets that a sentence names
ADAPT_FIRST = (  # experiments/beyond.py, EfficientNet-Lite0
    "Weights from elsewhere: `mast adapt`, then --ignore all, gains 1 to 6 points of linear probe "
    "in a minute. To train weights with BatchNorm further, add encoder.freeze_statistics=true "
    "optimizer.lr=0.005 optimizer.encoder_rate=0.1 (or 0.3): on five sets of photos at 96 "
    "pixels the last map gained 0.7 to 5.4 points, adapted -2.5 to 1.5 (adapted at 224 without "
    "training, four of them did as well). Rate 1 lost 14 to 37 to 0.3."
)


class OnSet(NamedTuple):
    """By how much a run is ahead on one set."""

    result: Result  # of the run
    gain: Difference  # in points
    targets: int  # of which it is the mean
    left_out: Sequence[Result] = ()  # that share images with it

    @property
    def name(self) -> str:
        """What a sentence calls the set, with what is not usual about its accuracy."""
        unusual = ["mean per class"] if self.result.metric == "mean_per_class" else []
        unusual += [f"mean of {self.targets} targets"] if self.targets > 1 else []
        unusual += [_drawn(self.result)] if self.left_out else []
        return _called(self.result) + (f" ({', '.join(unusual)})" if unusual else "")


class Gain(NamedTuple):
    """By how much a run is ahead by one measure."""

    measure: str  # such as "linear accuracy"
    sets: tuple[OnSet, ...]  # that with the most test images first

    @property
    def mean(self) -> Difference:
        """The mean over sets, with the interval of independent differences, recovered from each's.

        Reference:
            Zou and Donner, Construction of confidence limits about effect measures: a general
            approach, Statistics in Medicine 2008.
        """
        gains = [on_set.gain for on_set in self.sets]
        value = statistics.fmean(gain.value for gain in gains)
        below = math.hypot(*(gain.value - gain.low for gain in gains)) / len(gains)
        above = math.hypot(*(gain.high - gain.value for gain in gains)) / len(gains)
        return Difference(value, value - below, value + above)

    @property
    def place(self) -> str:
        """The sets, as a sentence names them."""
        names = [on_set.name for on_set in self.sets]
        if len(names) == 1:
            return names[0]
        return f"the mean of {_listed(names) if len(names) <= NAMED else f'{len(names)} sets'}"


@dataclass(frozen=True)
class EncoderComparison:
    """A run beside another encoder."""

    other: str  # what a sentence calls it
    gains: tuple[Gain, ...] = ()  # that differ first, the largest before the others
    is_start: bool = False  # whether the other is what the run started as
    is_published: bool = False  # whether it has weights that somebody else has published
    # Why nothing can be quoted, after the name of the other.
    why_not: str = "no accuracy of both is known on the same images"

    @property
    def is_better(self) -> bool | None:
        """Whether the run is better: by some measure, and worse by none; None: not known."""
        (better, *mixed) = {gain.mean.is_better for gain in self.gains} - {None} or {None}
        return None if mixed else better

    @property
    def sentence(self) -> str:
        """How the run compares, by each measure."""
        if not self.gains:
            return f"Not compared with {self.other}: {self.why_not}."
        differ = [gain for gain in self.gains if gain.mean.is_better is not None]
        words = {True: "Better than", False: "Worse than", None: "Better and worse than"}
        text = f"{words[self.is_better] if differ else 'Not distinguishable from'} {self.other}"
        place = ""
        for at, gain in enumerate(self.gains):
            if gain.place != place:
                text += f"{',' if at else ''} on {(place := gain.place)}:"
            else:
                text += ","
            text += f" {gain.measure} {_signed(gain.mean, '' if at else ' points')}"
            text += " (may be chance)" if differ and gain not in differ else ""
        return f"{text}."


@dataclass(frozen=True)
class Verdict:
    """Whether pretraining helped, in a sentence for each other encoder, and what they rest on."""

    name: str  # of the run
    comparisons: tuple[EncoderComparison, ...] = ()  # the first is what the run started as
    commands: Mapping[str, str] = field(default_factory=dict)  # they measure what is missing
    trained: bool = True  # whether the first is a run

    @property
    def is_better(self) -> bool | None:
        """Whether the run is better than what it started as; None where that is not known.

        It is not where published weights are.
        """
        if any(each.is_published and each.is_better is False for each in self.comparisons):
            return False
        return next((each.is_better for each in self.comparisons if each.is_start), None)

    @property
    def sentence(self) -> str:
        """The answer."""
        if not self.comparisons:
            if not self.trained:
                return f"Nothing but {self.name} was measured."
            return "What pretraining added is unknown: no other encoder was measured on this set."
        return " ".join(of.sentence for of in sorted(self.comparisons, key=lambda of: not of.gains))

    @property
    def basis(self) -> str:
        """What the intervals cover, and every set where there are several; empty without any."""
        known = [(each.other, gain) for each in self.comparisons for gain in each.gains]
        if not known:
            return ""
        sets = [on_set for _, gain in known for on_set in gain.sets]
        images = {of.result.images: of.result.sizes.get("test", 0) for of in sets}
        count = f"{sum(images.values()):,} " if all(images.values()) else ""
        seeds = ": they do not cover other seeds of pretraining" if self.trained else ""
        parts = [f"95 % intervals, paired, over {count}test images{seeds}."]
        for other, gain in known:
            if len(gain.sets) > 1:
                listed = ", ".join(f"{of.name} {_signed(of.gain)}" for of in gain.sets)
                parts.append(f"{gain.measure}, minus {other}: {listed}.")
        names = [f"{_called(of)} ({_drawn(of)})" for on_set in sets for of in on_set.left_out]
        if names:
            parts.append(f"Left out, as its images overlap with those: {_listed(names)}.")
        return " ".join(parts)

    def __str__(self) -> str:
        lines = [self.sentence, self.basis]
        if self.is_better is False and self.trained:
            lines.append(ADAPT_FIRST)
        lines += [f"To measure {name}: {command}" for name, command in self.commands.items()]
        return "\n".join(filter(None, lines))


def started_from_weights(run: RunFolder) -> bool:
    """Whether a run started from weights that were trained before."""
    return run.read_provenance().get("started_from") is not None


def verdict(
    run: RunFolder,
    name: str,
    of_run: Results,
    of_start: Results | None,
    of_others: Mapping[str, Results],
    seed: int = 0,
    resamples: int = 1000,
) -> Verdict:
    """Judge a run by its results, those of what it started as, if measured, and of named others."""
    beside, own = [], _published(of_run)
    for other, results in of_others.items():
        name_of = _published(results)
        same = name_of is not None and name_of == own
        called = f"{other} (the same weights)" if same else f"the published {name_of}"
        called = other if name_of is None else called
        measured = _compared(called, of_run, results, seed, resamples)
        beside.append(replace(measured, is_published=name_of is not None and not same))
    if of_start is not None:
        words = "weights it started from" if started_from_weights(run) else "untrained encoder"
        started = _compared(f"the {words}", of_run, of_start, seed, resamples)
        beside.insert(0, replace(started, is_start=True))
    known = any(each.is_start and each.gains for each in beside)
    trained = run.config.is_file()
    commands = {}
    if trained and not known:
        commands[STARTED_FROM] = _command(as_word(run.path), of_run, "--untrained")
    rgb = all(len(result.encoder.get("normalization", {}).get("mean", "rgb")) == 3
              for result in of_run.values())  # fmt: skip
    has_published = any(each.is_published and each.gains for each in beside)
    if trained and rgb and not has_published and not started_from_weights(run):
        by = sorted({protocol for protocol, _ in of_run} & QUOTED.keys())
        usual = by in ([], ["knn", "linear"])
        protocols = [] if usual else ["--protocols", *by]
        size = ["--size", str(BASELINE_SIZE), "--download"]
        commands["published weights"] = _command(BASELINE, of_run, *protocols, *size)
    return Verdict(name, tuple(beside), commands, trained)


def _published(results: Results) -> str | None:
    """The name whose weights were measured, if others published them."""
    return next((each.published for each in results.values() if each.published), None)


def _command(encoder: str, of_run: Results, *options: str) -> str:
    """The command that measures an encoder on the images that the run was measured on."""
    results = [result for (protocol, _), result in of_run.items() if protocol in QUOTED]
    seeds = {result.split.get("seed", 0) for result in results}
    words = ["mast", "evaluate", encoder, "--data", as_word(measured_set(results)), *options]
    if len(seeds) == 1 and any(seeds):
        words += ["--seed", str(*seeds)]
    return shlex.join(words)


def measured_set(results: Iterable[Result]) -> str:
    """What names the set of all these results as `--data` does; "SET" where nothing does."""
    sets = {(result.drawn_from, bool(result.split), result.sizes.get("test")) for result in results}
    if len(sets) != 1:
        return "SET"
    ((name, is_whole, tested),) = sets
    if is_whole:
        return name
    whole = name.partition("@")[0]
    if whole in (Factors.word, Toys.word):
        return whole if tested == SPLITS["test"] else f"{whole}:{4 * (tested or 0)}"
    for candidate in (os.path.dirname(name), whole):
        if candidate and not candidate.startswith(("hf:", "shards:")):  # which may be far away
            with suppress(UserError):
                if describe(candidate).with_test().parts.get("test") == name:
                    return candidate
    return "SET"


def _compared(
    other: str, of_run: Results, of_other: Results, seed: int, resamples: int
) -> EncoderComparison:
    gains = []
    for protocol, measure in QUOTED.items():
        if sets := tuple(_on_sets(protocol, of_run, of_other, seed, resamples)):
            gains.append(Gain(measure, sets))
    if gains:
        gains.sort(key=lambda gain: (gain.mean.is_better is None, -abs(gain.mean.value)))
        return EncoderComparison(other, tuple(gains))
    for (protocol, _), ours in of_run.items():
        for (other_protocol, _), theirs in of_other.items():
            if not protocol == other_protocol in QUOTED:
                continue
            seeds = [result.split.get("seed") for result in (ours, theirs)]
            if None not in seeds and seeds[0] != seeds[1] and ours.may_share_images(theirs):
                return EncoderComparison(other, why_not=(
                    f"other images of {ours.drawn_from} were tested, {_drawn(theirs)}; those of "
                    f"the run are {_drawn(ours)}"
                ))  # fmt: skip
            if ours.images == theirs.images and of_changed_images(ours, theirs):
                return EncoderComparison(other, why_not=(
                    "the test images were changed between the two: evaluate both again"
                ))  # fmt: skip
    return EncoderComparison(other)


def _on_sets(
    protocol: str, of_run: Results, of_other: Results, seed: int, resamples: int
) -> list[OnSet]:
    """The sets that both were measured on, by a protocol, with an interval, that with the most test
    images first; no two overlap.
    """
    found: list[OnSet] = []
    for key, ours in of_run.items():
        theirs = of_other.get(key)
        if key[0] != protocol or ours.metric not in ACCURACIES or theirs is None:
            continue
        targets = [target for target in ours.targets if target in theirs.targets]
        if not targets or _learned(ours) != _learned(theirs):
            continue
        gain = difference(theirs, ours, targets, ours.metric, seed, resamples)
        if gain is not None and math.isfinite(gain.low):
            found.append(OnSet(ours, gain, len(targets)))
    # The first of several results that overlap is quoted: the least, whatever was measured.
    found.sort(key=lambda of: (of.result.split.get("seed", -1), -of.result.sizes.get("test", 0),
                               of.result.set_name))  # fmt: skip
    quoted: list[OnSet] = []
    while found:
        first, *rest = found
        shared = [each for each in rest if each.result.may_share_images(first.result)]
        quoted.append(first._replace(left_out=[each.result for each in shared]))
        found = [each for each in rest if each not in shared]
    return sorted(quoted, key=lambda of: (-of.result.sizes.get("test", 0), of.name))


def _signed(gain: Difference, unit: str = "") -> str:
    return f"{gain.value:+.1f}{unit} [{gain.low:+.1f}, {gain.high:+.1f}]"


def _called(result: Result) -> str:
    """What a sentence calls the set of a result."""
    return readable(result.set_name).removesuffix("-test")


def _drawn(result: Result) -> str:
    """Which images of a set were tested."""
    return f"drawn by seed {result.split['seed']}" if result.split else "all of its test images"


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence, each once."""
    *others, last = dict.fromkeys(filter(None, names)) or [""]
    return f"{', '.join(others)} and {last}" if others else last


def _learned(result: Result) -> dict[str, int]:
    """The number of images it was learned from, by part."""
    return {part: count for part, count in result.sizes.items() if part != "test"}
