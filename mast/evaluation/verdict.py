"""Whether pretraining helped: a run beside the encoder that it started as, and beside others.

A rule says what is quoted, so that no outcome can choose it: the accuracy that the field
reports on a set, by linear probe or, where two encoders do not both have one, by kNN; on all sets
whose test images both were measured on, after learning from as many images. Of several targets of
a set it is the mean, and of several sets the mean in which all count alike. Of results whose test
images overlap, such as those of a folder that was split by several seeds, one is quoted: of the
whole set before one of a part, then the lowest seed.
"""

from __future__ import annotations

import math
import os
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mast.core.errors import UserError
from mast.core.files import as_word
from mast.core.run import RunFolder
from mast.data import Factors, Toys, describe
from mast.data.generated import SPLITS
from mast.evaluation.paired import Difference, difference, of_changed_images
from mast.evaluation.result import ACCURACIES, Result, in_words, readable
from mast.models import BASELINE, BASELINE_SIZE

Results = Mapping[tuple[str, str], Result]  # of a run, by protocol and tested images

QUOTED = {"linear": "linear accuracy", "knn": "kNN accuracy"}  # the first that both have
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

    name: str  # of the set, and what is not usual about its accuracy
    images: int  # how many were tested; 0 if not known
    gain: Difference  # in points
    row: str = ""  # protocol and measure that head its row in a table
    left_out: tuple[str, ...] = ()  # results that share images with it
    tested: str = ""  # hash of its test images and labels


@dataclass(frozen=True)
class EncoderComparison:
    """A run beside another encoder."""

    other: str  # what a sentence calls it
    measure: str = ""  # what is quoted, such as "linear accuracy"; empty where nothing can be
    sets: tuple[OnSet, ...] = ()  # that with the most test images first
    is_start: bool = False  # whether the other is what the run started as
    is_published: bool = False  # whether it has weights that somebody else has published
    # Why nothing can be quoted, after the name of the other.
    why_not: str = "which has neither linear nor kNN accuracy on the same images"

    @property
    def gain(self) -> Difference | None:
        """By how much the run is ahead: the mean over sets; None without any.

        The interval of a mean is that of independent differences, recovered from each one's.

        Reference:
            Zou and Donner, Construction of confidence limits about effect measures: a general
            approach, Statistics in Medicine 2008.
        """
        if not self.sets:
            return None
        gains = [on_set.gain for on_set in self.sets]
        value = statistics.fmean(gain.value for gain in gains)
        below = math.hypot(*(gain.value - gain.low for gain in gains)) / len(gains)
        above = math.hypot(*(gain.high - gain.value for gain in gains)) / len(gains)
        return Difference(value, value - below, value + above)

    @property
    def place(self) -> str:
        """The sets, as a sentence names them."""
        names = [on_set.name for on_set in self.sets]
        if len(names) < 2:
            return "".join(names)
        return f"the mean of {_listed(names) if len(names) <= NAMED else f'{len(names)} sets'}"

    def clause(self, before: EncoderComparison | None = None) -> str:
        """How the run compares, as part of a sentence, without what `before` says already."""
        gain = self.gain
        if gain is None:
            return f"not compared with {self.other}, {self.why_not}"
        of = on = ""
        if before is None or before.measure != self.measure:
            of = f" of {self.measure}"
        if before is None or {each.tested for each in before.sets} != {
            each.tested for each in self.sets
        }:
            on = f" on {self.place}"
        if gain.is_better is None:
            points = f"{gain.value:+.1f} points [{gain.low:+.1f}, {gain.high:+.1f}]"
            return f"not distinguishable from {self.other}{on} ({points}{of})"
        low, high = sorted((abs(gain.low), abs(gain.high)))
        points = f"{abs(gain.value):.1f} points [{low:.1f}, {high:.1f}]"
        if gain.is_better and self.is_start:
            return f"pretraining added {points}{of}{on} over {self.other}"
        return f"{'better' if gain.is_better else 'worse'} than {self.other}{on} by {points}{of}"


@dataclass(frozen=True)
class Verdict:
    """Whether pretraining helped, in one sentence, and what the sentence rests on."""

    name: str  # of the run
    comparisons: tuple[EncoderComparison, ...] = ()  # the first is what the run started as
    commands: Mapping[str, str] = field(default_factory=dict)  # they measure what is missing

    @property
    def start(self) -> EncoderComparison | None:
        """The run beside what it started as, where that was measured."""
        return next((beside for beside in self.comparisons if beside.is_start), None)

    @property
    def is_better(self) -> bool | None:
        """Whether the run is better than what it started as; None where that is not known.

        It is not where published weights are.
        """
        published = (beside.gain for beside in self.comparisons if beside.is_published)
        if any(gain is not None and gain.is_better is False for gain in published):
            return False
        gain = None if self.start is None else self.start.gain
        return None if gain is None else gain.is_better

    @property
    def sentence(self) -> str:
        """The answer."""
        if not self.comparisons:
            if STARTED_FROM not in self.commands:
                return f"Nothing but {self.name} was measured."
            return "What pretraining added is unknown: no other encoder was measured on this set."
        first, *others = sorted(self.comparisons, key=lambda beside: beside.gain is None)
        clauses = [first.clause(), *(each.clause(first) for each in others)]
        text = "; ".join(clauses)
        return f"{text[:1].upper()}{text[1:]}."

    @property
    def basis(self) -> str:
        """What the intervals cover, and every set where there are several; empty without any."""
        known = [beside for beside in self.comparisons if beside.sets]
        if not known:
            return ""
        images = {on_set.tested: on_set.images for beside in known for on_set in beside.sets}
        count = f"{sum(images.values()):,} " if all(images.values()) else ""
        parts = [
            f"95 % intervals, paired, over {count}test images: they do not cover other seeds of "
            "pretraining."
        ]
        if rows := _listed([on_set.row for beside in known for on_set in beside.sets]):
            parts.append(
                f"The sentence quotes {rows}; other rows weigh images differently, so they may "
                "disagree."
            )
        for beside in known:
            if len(beside.sets) > 1:
                listed = ", ".join(
                    f"{name} {gain.value:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"
                    for name, _, gain, *_ in beside.sets
                )
                parts.append(f"Beside {beside.other}: {listed}.")
        left_out = [name for beside in known for on_set in beside.sets for name in on_set.left_out]
        if left_out:
            parts.append(f"Left out, as its images overlap with those: {_listed(left_out)}.")
        return " ".join(parts)

    def __str__(self) -> str:
        lines = [self.sentence, self.basis]
        if self.is_better is False:
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
    """Judge a run by its results and those of others, which have names.

    `of_start` is what it started as; None where that was not measured.
    """
    beside = []
    for other, results in of_others.items():
        name_of = next((each.published for each in results.values() if each.published), None)
        called = other if name_of is None else f"the published {name_of}"
        measured = _compared(called, of_run, results, seed, resamples)
        beside.append(replace(measured, is_published=name_of is not None))
    if of_start is not None:
        words = "weights it started from" if started_from_weights(run) else "untrained encoder"
        started = _compared(f"the {words}", of_run, of_start, seed, resamples)
        beside.insert(0, replace(started, is_start=True))
    known = any(each.is_start and each.sets for each in beside)
    trained = run.config.is_file()
    commands = {}
    if trained and not known:
        commands[STARTED_FROM] = _command(as_word(run.path), of_run, "--untrained")
    rgb = all(len(result.encoder.get("normalization", {}).get("mean", "rgb")) == 3
              for result in of_run.values())  # fmt: skip
    has_published = any(each.is_published and each.sets for each in beside)
    if trained and rgb and not has_published and not started_from_weights(run):
        by = sorted({protocol for protocol, _ in of_run} & QUOTED.keys())
        protocols = ["--protocols", *by] if len(by) == 1 else []  # both are usual
        size = ["--size", str(BASELINE_SIZE), "--download"]
        commands["published weights"] = _command(BASELINE, of_run, *protocols, *size)
    return Verdict(name, tuple(beside), commands)


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
    for protocol, measure in QUOTED.items():
        sets = sorted(
            _on_sets(protocol, of_run, of_other, seed, resamples),
            key=lambda on_set: (-on_set.images, on_set.name),
        )
        if sets:
            return EncoderComparison(other, measure, tuple(sets))
    for (protocol, _), ours in of_run.items():
        for (other_protocol, _), theirs in of_other.items():
            if not protocol == other_protocol in QUOTED:
                continue
            if _only_seeds_differ(ours, theirs):
                return EncoderComparison(other, why_not=(
                    f"as other images of {ours.drawn_from} were tested: {_drawn(theirs)}, those "
                    f"of the run {_drawn(ours)}"
                ))  # fmt: skip
            if ours.images == theirs.images and of_changed_images(ours, theirs):
                return EncoderComparison(other, why_not=(
                    "as the test images were changed between the two: evaluate both again"
                ))  # fmt: skip
    return EncoderComparison(other)


def _only_seeds_differ(ours: Result, theirs: Result) -> bool:
    """Whether two seeds drew different test images from one folder."""
    seeds = [result.split.get("seed") for result in (ours, theirs)]
    return None not in seeds and seeds[0] != seeds[1] and ours.may_share_images(theirs)


class _Measured(NamedTuple):
    """A result of the run, how far it is ahead of the other's, and on how many targets."""

    result: Result
    gain: Difference
    targets: int


def _on_sets(
    protocol: str, of_run: Results, of_other: Results, seed: int, resamples: int
) -> Iterator[OnSet]:
    """The sets that both were measured on, by a protocol, with an interval; no two overlap."""
    found: list[_Measured] = []
    for key, ours in of_run.items():
        theirs = of_other.get(key)
        if key[0] != protocol or ours.metric not in ACCURACIES or theirs is None:
            continue
        targets = [target for target in ours.targets if target in theirs.targets]
        if not targets or _learned(ours) != _learned(theirs):
            continue
        gain = difference(theirs, ours, targets, ours.metric, seed, resamples)
        if gain is not None and math.isfinite(gain.low):
            found.append(_Measured(ours, gain, len(targets)))
    # The first of several results that overlap is quoted: the least, whatever was measured.
    found.sort(key=lambda of: (of.result.split.get("seed", -1), -of.result.sizes.get("test", 0),
                               of.result.set_name))  # fmt: skip
    while found:
        first, *rest = found
        overlapping = [each for each in rest if each.result.may_share_images(first.result)]
        yield _on_set(first, [measured.result for measured in overlapping])
        found = [each for each in rest if each not in overlapping]


def _on_set(measured: _Measured, left_out: Sequence[Result]) -> OnSet:
    result = measured.result
    unusual = ["mean per class"] if result.metric == "mean_per_class" else []
    unusual += [f"mean of {measured.targets} targets"] if measured.targets > 1 else []
    unusual += [_drawn(result)] if left_out else []
    name = _called(result) + (f" ({', '.join(unusual)})" if unusual else "")
    row = f"{result.protocol}, {in_words(result.metric)}"
    others = tuple(f"{_called(other)} ({_drawn(other)})" for other in left_out)
    tested = result.sizes.get("test", 0)
    return OnSet(name, tested, measured.gain, row, others, result.images)


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
