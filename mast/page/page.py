"""One self-contained page of a run, from the files in its folder alone."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mast.analyses import Analysis, read_arrays, understood
from mast.analyses.figure import capital
from mast.config import PretrainConfig, configuration_of, read
from mast.core.errors import UserError, counted
from mast.core.files import quoted, read_markup
from mast.core.registry import Entry
from mast.core.run import RunFolder
from mast.evaluation.compare import Comparison, compare
from mast.evaluation.result import Result, results_in
from mast.evaluation.verdict import started_from_weights
from mast.methods import METHODS, collapse_checks
from mast.page.html import element, write_fitting
from mast.page.pictures import plane, shelf
from mast.page.tables import all_measures, by_space, main_measures, of_classifiers, of_grid

COLLAPSED_RANK = 2.0  # below it all images lie on a line
CURVES, NEIGHBOURS = "curves", "neighbours"  # what the page opens with, below the verdict
Part = dict[str, Any]  # an analysis of the run, as the template shows it


def write_page(
    folder: RunFolder, beside: Sequence[Path], analyses: Mapping[str, Entry[Analysis]], out: Path
) -> Path:
    """Write the page of a run.

    Args:
        folder: The run.
        beside: Other run folders whose evaluations are shown beside this one's.
        analyses: The analyses that it may have, by name, in the order of the page.
        out: The page; it is returned, below 10 MB.
    """
    results = results_in(folder.path)
    if beside and not results:
        raise UserError(
            f"{folder.path} has no evaluations to compare with those of others; evaluate it first"
        )
    measured = compare([folder.path, *beside]) if results else None
    kinds = [kind_of_run(run) for run in (measured.folders if measured else [folder.path])]
    config, log = configuration_of(folder), folder.read_metrics()
    provenance = folder.read_provenance()
    whole = {
        "name": folder.path.resolve().name,
        "health": health(log, provenance.get("representation")),
        "trained": training_summary(config, provenance)
        + ("" if folder.encoder.is_file() else " It is not finished."),
        "facts": _facts(config, provenance, kinds[0], duration(log)),
        "classifiers": of_classifiers(results),
        "measure": f"mast evaluate {quoted(folder.path)} --data SET",
        "provenance": _origin(folder, provenance),
        **(_measured(measured, kinds) if measured else {}),
    }
    write_fitting(
        out,
        "page.html.jinja",
        "page.js",
        lambda side: {**whole, **_analyses(folder, analyses, side)},
        f"the page of {folder.path}",
        "analyze fewer images, such as images=128",
    )
    return out


def _measured(measured: Comparison, kinds: Sequence[str]) -> dict[str, Any]:
    """What was measured of the run, and of others beside it."""
    return {
        "verdict": measured.verdict,
        "measured": main_measures(measured, kinds),
        "everything": all_measures(measured, kinds),
        "spaces": by_space(measured),
        "first": measured.runs[0] if len(measured.runs) > 1 else "",
        "notes": measured.notes,
    }


def _analyses(
    folder: RunFolder, analyses: Mapping[str, Entry[Analysis]], side: int
) -> dict[str, Any]:
    """The analyses with images of at most `side` pixels, and why others are missing."""
    parts: dict[str, Part] = {}
    reasons = folder.read_missing()
    for name, entry in analyses.items():
        file = folder.analysis / f"{name}.npz"
        if file.is_file() and file.with_suffix(".svg").is_file():  # which is written last
            try:
                parts[name] = _part(name, entry, file, side)
            except UserError as error:
                reasons[name] = str(error)
    missing = [
        {
            "name": name,
            "title": entry.title,
            "reason": reasons.get(name, "Not computed yet."),
            "invitation": "To compute it again:" if name in reasons else "To compute it:",
            "command": entry.kind().command.format(name=name, run=quoted(folder.path)),
        }
        for name, entry in analyses.items()
        if name not in parts
    ]
    return {
        "curves": parts.pop(CURVES, None),
        "neighbours": parts[NEIGHBOURS].pop("shelves") if NEIGHBOURS in parts else [],
        "parts": [*parts.values()],
        "missing": missing,
    }


def _part(name: str, entry: Entry[Analysis], file: Path, side: int) -> Part:
    """An analysis as the page shows it; an error where a file holds what no analysis writes."""
    analysis = entry.kind()
    with understood(file):
        arrays = read_arrays(file)
        details, caption = analysis.details(arrays), capital(analysis.caption(arrays))
        drawn = file.with_suffix(".svg")
        figure = element(read_markup(drawn), name, f"{entry.title}. {caption}")
        if figure is None:
            raise UserError(f"{drawn} is not what `mast analyze` draws: make it again.")
        return {
            "name": name,
            "title": entry.title,
            "headline": capital(analysis.headline(arrays)),
            "caption": caption,
            "figure": figure,
            "table": of_grid(f"Numbers: {entry.title}", details.grid) if details.grid else None,
            "shelves": [shelf(gallery, side) for gallery in details.galleries],
            "plane": plane(details.map, side) if details.map else None,
        }


def _facts(
    config: PretrainConfig, provenance: Mapping[str, Any], kind: str, trained_in: str | None
) -> list[tuple[str, str]]:
    count = provenance.get("data", {}).get("images")
    facts = {
        "Method": f"{kind}, views {config.views}",
        "Encoder": config.encoder.name,
        "Images": config.data.spec if count is None else f"{count:,}",
        "Size": f"{config.size} pixels",
        "Epochs": f"{config.epochs}, batches of {config.batch_size}",
        "Trained in": trained_in,
    }
    return [(key, value) for key, value in facts.items() if value is not None]


def _origin(folder: RunFolder, provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was run, where it is known."""
    data, versions = provenance.get("data", {}), provenance.get("versions", {})

    def filled(template: str, facts: Mapping[str, Any]) -> str:
        try:
            return template.format_map(facts)
        except KeyError:
            return ""

    facts = {
        "Run folder": folder.path,
        "Configuration": folder.config,
        "Images": filled("{images:,} of {spec}", {"spec": None, **data}),
        "Fingerprint": data.get("fingerprint"),
        "Seed": provenance.get("seed"),
        "Device": filled("{processes} × {device}, {precision}", provenance),
        "Machine": filled("{processor}, {cores} cores", provenance),
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "Revision": provenance.get("git_revision"),
    }
    return [(key, str(value)) for key, value in facts.items() if value not in (None, "")]


# ---------------------------------------------------------------------------- in words


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
        f"{count}{config.data.spec} for {counted(config.epochs, 'epoch')} at {config.size} pixels, "
        f"with {counted(len(operators), 'augmentation')}."
    )


def health(log: Sequence[Mapping[str, Any]], dimensions: int | None) -> Health:
    """Whether a run collapsed or diverged, from the lines of its log."""
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
        return counted(round(seconds), "second")
    minutes = round(seconds / 60)
    return counted(minutes, "minute") if minutes < 120 else f"{seconds / 3600:.1f} hours"


def _last_values(log: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {
        name: float(value)
        for line in log
        for name, value in line.items()
        if isinstance(value, int | float)
    }
