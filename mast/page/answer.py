"""What the page says in words: what was trained, whether it collapsed, what each run is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mast.config import PretrainConfig, read
from mast.core.run import RunFolder
from mast.measure.result import Result
from mast.measure.verdict import started_from_weights
from mast.methods import METHODS, collapse_checks

COLLAPSED_RANK = 2.0  # below it all images lie on a line


@dataclass(frozen=True)
class Health:
    """Whether training went well.

    Attributes:
        good: No sign of a collapse or a divergence; None where nothing was logged.
        verdict: In a few words.
        evidence: What the verdict is computed from.
        warnings: What was logged during training, each once.
    """

    good: bool | None
    verdict: str
    evidence: str
    warnings: tuple[str, ...] = ()


def training_summary(config: PretrainConfig, provenance: Mapping[str, Any], verb: str) -> str:
    """What is trained, on what, in a sentence.

    Args:
        config: Of the run.
        provenance: Where it comes from: `provenance.json`.
        verb: "trained", or what else its method does with the encoder.
    """
    images = provenance.get("data", {}).get("images")
    count = f"{images:,} images of " if images is not None else ""
    operators = config.preset.operators
    return (
        f"{METHODS[config.method].title} {verb} {config.encoder.name} on "
        f"{count}{config.data.spec} for {_plural(config.epochs, 'epoch')} at {config.size} pixels, "
        f"with {_plural(len(operators), 'augmentation')}."
    )


def health(log: Sequence[Mapping[str, Any]], dimensions: int | None) -> Health:
    """Whether a run collapsed or diverged.

    Args:
        log: Lines of `metrics.jsonl`.
        dimensions: Of the representation, where they are known.
    """
    losses = [line["loss"] for line in log if "loss" in line]
    warnings = tuple(dict.fromkeys(str(line["warning"]) for line in log if "warning" in line))
    if not losses:
        return Health(
            None, "Unknown.", "No loss was logged, so a collapse would not show.", warnings
        )
    lost = sum(not math.isfinite(loss) for loss in losses)
    evidence = [f"{lost} of {len(losses)} logged losses were not finite"] if lost else []
    signs = []
    rank = _last(log, "online/effective_rank")
    if rank is not None and not math.isfinite(rank):
        signs.append("The representation is not finite.")
    elif rank is not None:
        total = f" of {dimensions}" if dimensions is not None else ""
        evidence.append(f"the representation's effective rank at the end is {rank:.0f}{total}")
        if rank < COLLAPSED_RANK:
            signs.append("The representation collapsed.")
    for check in collapse_checks(last_values(log)):
        evidence += [check.evidence] if check.evidence else []
        signs += [check.sign] if check.sign is not None else []
    if not lost:
        evidence.append(f"all {len(losses)} logged losses are finite")
    if not math.isfinite(losses[-1]):
        signs.insert(0, "The loss diverged.")
    elif lost:
        signs.insert(0, "The loss was not always finite.")
    if warnings and not signs:
        signs.append("Warnings were logged.")
    reasons = "; ".join(evidence)
    return Health(
        not signs,
        " ".join(signs) or "Nothing collapsed or diverged.",
        f"{reasons[0].upper()}{reasons[1:]}.",
        warnings,
    )


def kind_of_run(run: Path) -> str:
    """What a run is, for the head of its column: its method, or that it was not trained."""
    folder = RunFolder(run)
    if folder.config.is_file():
        return METHODS[read(folder.config).method].title
    trained = RunFolder(folder.path.parent)
    if trained.untrained == folder.path and started_from_weights(trained):
        return "the weights it started from"
    measured = Result.read(next(folder.evaluations.glob("*.json")))
    return "other weights" if "weights" in measured.encoder else "untrained"


def duration(log: Sequence[Mapping[str, Any]]) -> str | None:
    """How long training took, in words."""
    seconds = _last(log, "seconds")
    return in_words(seconds) if seconds is not None and math.isfinite(seconds) else None


def in_words(seconds: float) -> str:
    """A time: "12 seconds", "5 minutes", "3.2 hours"."""
    if seconds < 60:
        return _plural(round(seconds), "second")
    minutes = round(seconds / 60)
    return _plural(minutes, "minute") if minutes < 120 else f"{seconds / 3600:.1f} hours"


def _last(log: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The last value of a metric, whatever it is."""
    return last_values(log).get(name)


def last_values(log: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The last value of every metric."""
    return {
        name: float(value)
        for line in log
        for name, value in line.items()
        if isinstance(value, int | float)
    }


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
