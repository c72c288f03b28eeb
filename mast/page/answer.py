"""What the page says in words: what was trained, whether it collapsed, what each run is."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mast.config import PretrainConfig, read
from mast.core.run import RunFolder
from mast.measure.result import Result
from mast.measure.verdict import started_from_weights
from mast.methods import METHODS, collapse_checks

COLLAPSED_RANK = 2.0  # below it all images lie on a line


class Health(NamedTuple):
    """Whether training went well."""

    good: bool | None  # no sign of a collapse or a divergence; None where nothing was logged
    verdict: str
    evidence: str  # what the verdict is computed from
    warnings: tuple[str, ...]  # as they were logged, each once


def training_summary(config: PretrainConfig, provenance: Mapping[str, Any]) -> str:
    """What was trained, on what, in a sentence."""
    images = provenance.get("data", {}).get("images")
    count = f"{images:,} images of " if images is not None else ""
    operators = config.preset.operators
    return (
        f"{METHODS[config.method].title} trained {config.encoder.name} on "
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
        reason = "No loss was logged, so a collapse would not show."
        return Health(None, "Unknown.", reason, warnings)
    last = _last_values(log)
    signs, evidence = [], []
    lost = sum(not math.isfinite(loss) for loss in losses)
    if lost:
        whole = math.isfinite(losses[-1])
        signs.append("The loss was not always finite." if whole else "The loss diverged.")
        evidence.append(f"{lost} of {len(losses)} logged losses were not finite")
    rank = last.get("online/effective_rank")
    if rank is not None and not math.isfinite(rank):
        signs.append("The representation is not finite.")
    elif rank is not None:
        total = f" of {dimensions}" if dimensions is not None else ""
        evidence.append(f"the representation's effective rank at the end is {rank:.0f}{total}")
        if rank < COLLAPSED_RANK:
            signs.append("The representation collapsed.")
    for check in collapse_checks(last):
        evidence += [check.evidence] if check.evidence else []
        signs += [check.sign] if check.sign is not None else []
    if not lost:
        evidence.append(f"all {len(losses)} logged losses are finite")
    if warnings and not signs:
        signs.append("Warnings were logged.")
    verdict = " ".join(signs) or "Nothing collapsed or diverged."
    return Health(not signs, verdict, f"{capital('; '.join(evidence))}.", warnings)


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
    """How long training took, in words: "12 seconds", "5 minutes", "3.2 hours"."""
    seconds = _last_values(log).get("seconds", math.inf)
    if not math.isfinite(seconds):
        return None
    if seconds < 60:
        return _plural(round(seconds), "second")
    minutes = round(seconds / 60)
    return _plural(minutes, "minute") if minutes < 120 else f"{seconds / 3600:.1f} hours"


def capital(text: str) -> str:
    """A text that begins a sentence."""
    return text[:1].upper() + text[1:]


def _last_values(log: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {
        name: float(value)
        for line in log
        for name, value in line.items()
        if isinstance(value, int | float)
    }


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
