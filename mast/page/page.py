"""One self-contained page of a run, made from the files in its folder."""

import base64
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from mast.analyses import Analysis, Gallery, read_arrays, understood
from mast.analyses.figure import capital
from mast.config import PretrainConfig, configuration_of, read
from mast.core.errors import UserError, counted
from mast.core.files import quoted
from mast.core.registry import Entry
from mast.core.run import RunFolder, read_optional
from mast.evaluation.compare import compare
from mast.evaluation.result import Result, results_in
from mast.evaluation.verdict import started_from_weights
from mast.methods import METHODS, collapse_signs
from mast.page.html import Block, Section, jpeg, write_page
from mast.page.tables import all_measures, main_measures, of_grid

COLLAPSED_RANK = 2.0  # below it, all embeddings lie on a line


def write_report(
    folder: RunFolder, beside: Sequence[Path], analyses: Mapping[str, Entry[Analysis]], out: Path
) -> Path:
    """Write the page of a run.

    Args:
        folder: The run.
        beside: Other run folders to compare with.
        analyses: Analyses by name, in the order of the page.
        out: File to write, also returned.
    """
    config, log = configuration_of(folder), folder.read_metrics()
    provenance = folder.read_provenance()
    verdict, measured = _measured(folder, beside)
    signs = signs_of_trouble(log)
    logged = any("loss" in line for line in log)
    sound = "Nothing collapsed or diverged." if logged else "No loss was logged."
    state: list[Block] = [("verdict bad" if signs else "verdict", " ".join(signs) or sound)]
    state += [("note", text) for text in _warnings(log)]
    summary = training_summary(config, provenance)
    if not folder.encoder.is_file():
        summary += " It is not finished."

    shown = _analyses(folder, analyses)
    neighbours, curves = shown.pop("neighbours"), shown.pop("curves")
    sections = [
        Section("", verdict),
        neighbours,
        Section(curves.title, [*curves.blocks, *state]),
        Section("How good it is", [("lead", summary), *measured]),
        *shown.values(),
        Section("What was run", [("facts", _facts(folder, config, provenance))]),
    ]
    write_page(out, folder.path.resolve().name, sections)
    return out


def _measured(folder: RunFolder, beside: Sequence[Path]) -> tuple[list[Block], list[Block]]:
    """The verdict, and the results of the run and of others."""
    if not results_in(folder.path):
        if beside:
            raise UserError(f"beside: {folder.path} has no evaluations; run `mast evaluate` first")
        measure = f"mast evaluate {quoted(folder.path)} --data SET"
        text = "What pretraining added is unknown: nothing has been measured yet."
        commands = [("command", measure), ("command", f"{measure} --untrained")]
        return [("verdict", text), *commands], [("note", "Nothing has been measured yet.")]
    measured = compare([folder.path, *beside])
    verdict = measured.verdict
    looks = {True: "verdict good", False: "verdict bad", None: "verdict"}[verdict.is_better]
    opening: list[Block] = [(looks, verdict.sentence)]
    opening += [("note", verdict.basis)] if verdict.basis else []
    if verdict.command:
        opening += [("note", "To evaluate the starting weights:"), ("command", verdict.command)]
    kinds = [kind_of_run(run) for run in measured.folders]
    main, everything = (of(measured, kinds) for of in (main_measures, all_measures))
    note = "With 95 % intervals."
    if len(measured.runs) > 1:
        note += (
            f" Small print: paired gain of {measured.runs[0]} over that run, bold if the interval "
            "excludes zero."
        )
    blocks = [("table", main), ("note", note), *(("note", text) for text in measured.notes)]
    if len(everything.rows) > len(main.rows):
        blocks.append(("folded", everything))
    return opening, blocks


def _analyses(folder: RunFolder, analyses: Mapping[str, Entry[Analysis]]) -> dict[str, Section]:
    """A section for each analysis, or why it is missing."""
    sections, reasons = {}, read_optional(folder.analysis / "missing.json")
    for name, entry in analyses.items():
        file = folder.analysis / f"{name}.npz"
        try:
            if not file.with_suffix(".svg").is_file():  # which is written last
                raise UserError(reasons.get(name, "Not computed yet."))
            blocks = _blocks(entry, file)
        except UserError as error:
            command = entry.kind().command.format(name=name, run=quoted(folder.path))
            blocks = [("note", str(error)), ("command", command)]
        sections[name] = Section(entry.title, blocks)
    return sections


def _blocks(entry: Entry[Analysis], file: Path) -> list[Block]:
    """Figure, caption and tables of an analysis; raises if a file is damaged."""
    analysis = entry.kind()
    with understood(file):
        arrays = read_arrays(file)
        details, caption = analysis.details(arrays), capital(analysis.caption(arrays))
        # An SVG in an <img> runs no scripts and loads no files.
        svg = base64.b64encode(file.with_suffix(".svg").read_bytes()).decode()
        drawn = {"source": f"data:image/svg+xml;base64,{svg}", "caption": caption}
        blocks: list[Block] = []
        for gallery in details.galleries:
            blocks += [("note", gallery.title), ("gallery", _gallery(gallery))]
        blocks.append(("figure", drawn))
        if details.grid is not None:
            blocks.append(("folded", of_grid("The numbers", details.grid)))
        return blocks


def _gallery(gallery: Gallery) -> dict[str, Any]:
    pictures = [
        {"source": jpeg(Image.fromarray(picture_PP3)), "caption": caption}
        for picture_PP3, caption in zip(gallery.pictures_NPP3, gallery.captions, strict=True)
    ]
    return {"pictures": pictures, "columns": gallery.columns}


# ---------------------------------------------------------------------------- in words


def training_summary(config: PretrainConfig, provenance: Mapping[str, Any]) -> str:
    """A sentence on what was trained on which images."""
    images = provenance.get("data", {}).get("images")
    count = f"{images:,} images of " if images is not None else ""
    operators = config.preset.operators
    return (
        f"{METHODS[config.method].title} trained {config.encoder.name} on "
        f"{count}{config.data.spec} for {counted(config.epochs, 'epoch')} at {config.size} pixels, "
        f"with {counted(len(operators), 'augmentation')}."
    )


def signs_of_trouble(log: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on whether a run collapsed or diverged, from its log."""
    losses = [line["loss"] for line in log if "loss" in line]
    signs = []
    if losses and not math.isfinite(losses[-1]):
        signs.append("The loss diverged.")
    elif not all(map(math.isfinite, losses)):
        signs.append("The loss was not always finite.")
    last = {
        name: float(value)
        for line in log
        for name, value in line.items()
        if isinstance(value, int | float)
    }
    rank = last.get("online/effective_rank", COLLAPSED_RANK)
    if not math.isfinite(rank):
        signs.append("The representation is not finite.")
    elif rank < COLLAPSED_RANK:
        signs.append("The representation collapsed.")
    signs += collapse_signs(last)
    return signs or ["Warnings were logged."] * bool(_warnings(log))


def _warnings(log: Sequence[Mapping[str, Any]]) -> list[str]:
    """Distinct warnings of the log."""
    return list(dict.fromkeys(str(line["warning"]) for line in log if "warning" in line))


def kind_of_run(run: Path) -> str:
    """Column heading of a run: its method, or that it is untrained."""
    folder = RunFolder(run)
    if folder.config.is_file():
        return METHODS[read(folder.config).method].title
    trained = RunFolder(folder.path.parent)
    if trained.untrained == folder.path and started_from_weights(trained):
        return "the weights it started from"
    measured = Result.read(next(folder.evaluations.glob("*.json")))
    return "other weights" if "weights" in measured.encoder else "untrained"


def _facts(
    folder: RunFolder, config: PretrainConfig, provenance: Mapping[str, Any]
) -> dict[str, str]:
    """Facts on the run, as far as known."""
    data = {"spec": config.data.spec, **provenance.get("data", {})}
    known = {
        "run folder": folder.path,
        "views": config.views,
        "batch": config.batch_size,
        **{f"images: {name}": value for name, value in data.items()},
        **{name: value for name, value in provenance.items() if name not in ("data", "versions")},
        **provenance.get("versions", {}),
    }
    return {name.replace("_", " "): str(fact) for name, fact in known.items() if fact is not None}
