"""Whether pretraining helped: a run compared with its starting weights and others.

A fixed rule chooses the measures: every accuracy in `QUOTED` that both encoders have, over all sets
with equal test images and number of training images. Significant differences come first, sorted by
size. Targets and sets are averaged. If several seeds drew test images of a folder, one result is
quoted: the whole folder, or the lowest seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mast.core.files import quoted
from mast.core.run import RunFolder
from mast.evaluation.paired import Difference, difference
from mast.evaluation.result import Result, readable

Results = Mapping[tuple[str, str], Result]  # of a run, by protocol and tested images

QUOTED = {
    "linear": "linear accuracy",
    "knn": "kNN accuracy",
    "linear_sgd": "linear accuracy by SGD",
    "semi": "accuracy by few labels",
    "finetune": "fine-tuned accuracy",
}
ADAPT_FIRST = (  # experiments/beyond.py, EfficientNet-Lite0
    "Weights from elsewhere: `mast adapt`, then --ignore all, gains 1 to 6 points of linear probe "
    "in a minute. To train weights with BatchNorm further, add encoder.freeze_statistics=true "
    "optimizer.lr=0.005 optimizer.encoder_rate=0.1 (or 0.3): on five sets of photos at 96 "
    "pixels the last map gained 0.7 to 5.4 points, adapted -2.5 to 1.5 (adapted at 224 without "
    "training, four of them did as well). Rate 1 lost 14 to 37 to 0.3."
)


class Gain(NamedTuple):
    """The gain of a run by one measure, the mean over sets."""

    measure: str  # such as "linear accuracy"
    mean: Difference
    sets: tuple[Result, ...]  # of the run, that with the most test images first

    @property
    def place(self) -> str:
        """The sets as text, with unusual metrics or splits."""
        *others, last = [readable(result.set_name).removesuffix("-test") for result in self.sets]
        if others:
            return f"the mean of {', '.join(others)} and {last}"
        (of,) = self.sets
        unusual = ["mean per class"] if of.metric == "mean_per_class" else []
        unusual += [f"mean of {len(of.targets)} targets"] if len(of.targets) > 1 else []
        unusual += [f"drawn by seed {of.split['seed']}"] if of.split else []
        return f"{last} ({', '.join(unusual)})" if unusual else last


@dataclass(frozen=True)
class EncoderComparison:
    """A run against another encoder."""

    other: str  # its name in a sentence
    gains: tuple[Gain, ...] = ()  # clear ones first, the largest before the others
    is_start: bool = False  # whether the other is what the run started as
    is_published: bool = False  # whether the other has published weights

    @property
    def is_better(self) -> bool | None:
        """Whether the run is better by some measure and worse by none; None if undecided."""
        (better, *mixed) = {gain.mean.is_better for gain in self.gains} - {None} or {None}
        return None if mixed else better

    @property
    def sentence(self) -> str:
        """Sentence on the comparison by each measure."""
        if not self.gains:
            return f"Not compared with {self.other}: no accuracy of both on the same images."
        clear = [gain for gain in self.gains if gain.mean.is_better is not None]
        words = {True: "Better than", False: "Worse than", None: "Better and worse than"}
        text = words[self.is_better] if clear else "Not distinguishable from"
        text, place = f"{text} {self.other}", ""
        for at, gain in enumerate(self.gains):
            text += "," * bool(at) + f" on {gain.place}:" * (gain.place != place)
            mean = str(gain.mean) if at else str(gain.mean).replace(" ", " points ", 1)
            text += f" {gain.measure} {mean}"
            text += " (may be chance)" * bool(clear and gain not in clear)
            place = gain.place
        return f"{text}."


@dataclass(frozen=True)
class Verdict:
    """The verdict: a sentence per other encoder."""

    name: str  # of the run
    comparisons: tuple[EncoderComparison, ...] = ()  # the first is what the run started as
    trained: bool = True  # whether the first is a run
    command: str = ""  # measures the starting weights, if they have not been measured

    @property
    def is_better(self) -> bool | None:
        """Whether the run is better than its starting weights; None if unknown.

        Not if published weights are better.
        """
        if any(each.is_published and each.is_better is False for each in self.comparisons):
            return False
        return next((each.is_better for each in self.comparisons if each.is_start), None)

    @property
    def sentence(self) -> str:
        """The answer."""
        if self.comparisons:
            known_first = sorted(self.comparisons, key=lambda each: not each.gains)
            return " ".join(each.sentence for each in known_first)
        if self.trained:
            return "What pretraining added is unknown: no other encoder was measured on this set."
        return f"Nothing but {self.name} was measured."

    @property
    def basis(self) -> str:
        """Note on what the intervals cover; empty without intervals."""
        sets = [of for each in self.comparisons for gain in each.gains for of in gain.sets]
        images = sum({of.images: of.sizes.get("test", 0) for of in sets}.values())
        seeds = ": they do not cover other seeds of pretraining" if self.trained else ""
        return f"95 % intervals, paired, over {images:,} test images{seeds}." if sets else ""

    def __str__(self) -> str:
        lines = [self.sentence, self.basis]
        if self.is_better is False and self.trained:
            lines.append(ADAPT_FIRST)
        if self.command:
            lines.append(f"To measure what it started as: {self.command}")
        return "\n".join(filter(None, lines))


def started_from_weights(run: RunFolder) -> bool:
    """Whether a run started from pretrained weights."""
    return run.read_provenance().get("started_from") is not None


def verdict(
    run: RunFolder,
    name: str,
    of_run: Results,
    of_start: Results | None,
    of_others: Mapping[str, Results],
) -> Verdict:
    """Judge a run against its starting weights, if evaluated, and others."""
    found, own = list[EncoderComparison](), _published(of_run)
    from_weights, trained = started_from_weights(run), run.config.is_file()
    if of_start is not None:
        start = "weights it started from" if from_weights else "untrained encoder"
        gains = _gains(of_run, of_start)
        found.append(EncoderComparison(f"the {start}", gains, is_start=True))
    for other, results in of_others.items():
        published = _published(results)
        words = other if published is None else f"the published {published}"
        words = f"{other} (the same weights)" if published and published == own else words
        gains = _gains(of_run, results)
        found.append(EncoderComparison(words, gains, is_published=published not in (None, own)))
    is_known = not trained or any(each.is_start and each.gains for each in found)
    command = "" if is_known else f"mast evaluate {quoted(run.path)} --data SET --untrained"
    return Verdict(name, tuple(found), trained, command)


def _published(results: Results) -> str | None:
    """The name of evaluated published weights, if any."""
    return next((each.published for each in results.values() if each.published), None)


def _gains(of_run: Results, of_other: Results) -> tuple[Gain, ...]:
    """Gains of a run by each measure for which both have an interval."""
    gains = []
    for protocol, measure in QUOTED.items():
        quoted: dict[str, tuple[Result, Difference]] = {}  # by the whole set
        for key, ours in sorted(of_run.items(), key=lambda item: item[1].split.get("seed", -1)):
            theirs = of_other.get(key)
            if key[0] != protocol or theirs is None:
                continue
            targets = [target for target in ours.targets if target in theirs.targets]
            if not targets or _learned(ours) != _learned(theirs):
                continue
            found = difference(theirs, ours, targets, ours.metric)
            if found is not None and math.isfinite(found.low):
                quoted.setdefault(ours.split.get("of", ours.images), (ours, found))
        if quoted:
            order = sorted(quoted.values(), key=lambda pair: -pair[0].sizes.get("test", 0))
            results, of_sets = zip(*order, strict=True)
            gains.append(Gain(measure, _mean(of_sets), results))
    gains.sort(key=lambda gain: (gain.mean.is_better is None, -abs(gain.mean.value)))
    return tuple(gains)


def _mean(gains: Sequence[Difference]) -> Difference:
    """Mean of independent differences, with an interval from theirs.

    Reference:
        Zou and Donner, Construction of confidence limits about effect measures: a general approach,
        Statistics in Medicine 2008.
    """
    value = statistics.fmean(gain.value for gain in gains)
    below = math.hypot(*(gain.value - gain.low for gain in gains)) / len(gains)
    above = math.hypot(*(gain.high - gain.value for gain in gains)) / len(gains)
    return Difference(value, value - below, value + above)


def _learned(result: Result) -> dict[str, int]:
    """Number of training images by part."""
    return {part: count for part, count in result.sizes.items() if part != "test"}
