"""One self-contained page of a run, from the files in its folder alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from mast.analyses import Analysis, read_arrays, understood
from mast.config import configuration_of
from mast.core.checkpoint import write_text
from mast.core.errors import UserError
from mast.core.files import as_unicode, quoted, read_markup
from mast.core.registry import Entry
from mast.core.run import RunFolder
from mast.measure.compare import Comparison, compare
from mast.measure.result import results_in
from mast.measure.verdict import Verdict
from mast.page.answer import Health, duration, health, kind_of_run, training_summary
from mast.page.html import element, inlined, policy, template
from mast.page.pictures import Plane, Shelf, plane, shelf
from mast.page.tables import (
    Table,
    all_measures,
    by_space,
    main_measures,
    of_classifiers,
    of_grid,
)

LIMIT = 10_000_000  # bytes: a page can still be sent by mail
SIDES = (96, 48, 24)  # pixels of the images, the next where the page would be too large
CURVES, NEIGHBOURS = "curves", "neighbours"  # what the page opens with, below the verdict


@dataclass(frozen=True)
class Part:
    """An analysis of the run, as the page shows it.

    Attributes:
        name: Of the analysis.
        title: Its heading.
        headline: What was found, for the top of the page.
        caption: What to see in the figure.
        figure: An SVG element.
        table: Its numbers.
        shelves: Images to look at.
        plane: Points that can be arranged and coloured.
    """

    name: str
    title: str
    headline: str
    caption: str
    figure: Markup
    table: Table | None
    shelves: tuple[Shelf, ...]
    plane: Plane | None


@dataclass(frozen=True)
class Missing:
    """An analysis that the run does not have: why, and the command that makes it.

    Attributes:
        name: Of the analysis.
        title: Its heading.
        reason: What the run lacks, or that it was not computed yet.
        invitation: What stands before the command.
        command: For a shell.
    """

    name: str
    title: str
    reason: str
    invitation: str
    command: str


@dataclass(frozen=True)
class Page:
    """All that the template shows, from top to bottom.

    What the run lacks of `neighbours` and `curves` is among `missing`, as of all analyses.
    """

    name: str
    verdict: Verdict | None
    neighbours: tuple[Shelf, ...]
    curves: Part | None
    health: Health
    trained: str
    facts: tuple[tuple[str, str], ...]
    measured: Table | None
    everything: Table | None
    spaces: Table | None
    classifiers: tuple[Table, ...]
    first: str
    notes: tuple[str, ...]
    measure: str
    parts: tuple[Part, ...]
    missing: tuple[Missing, ...]
    provenance: tuple[tuple[str, str], ...]
    style: Markup
    script: Markup
    policy: str


def write_page(
    folder: RunFolder, beside: Sequence[Path], analyses: Mapping[str, Entry[Analysis]], out: Path
) -> Path:
    """Write the page of a run.

    Args:
        folder: The run.
        beside: Other run folders whose evaluations are shown beside this one's.
        analyses: The analyses that it may have, by name, in the order of the page.
        out: The page.

    Returns:
        `out`, below 10 MB.

    Raises:
        UserError: The page cannot be written, or would be too large.
    """
    measured = compare([folder.path, *beside]) if _measured(folder, beside) else None
    runs = [folder.path] if measured is None else measured.folders
    kinds = tuple(map(kind_of_run, runs))
    write_fitting(
        out,
        "page.html.jinja",
        lambda side: _page(folder, analyses, measured, kinds, side),
        f"the page of {folder.path}",
        "analyze fewer images, such as images=128",
    )
    return out


def write_fitting(out: Path, name: str, page: Callable[[int], Any], what: str, advice: str) -> None:
    """Write a page with images as large as its size allows.

    Args:
        out: The page.
        name: Of its template.
        page: What the template shows, with images of so many pixels.
        what: What it is called in an error.
        advice: How to make it smaller.

    Raises:
        UserError: It cannot be written, or is too large with the smallest images.
    """
    html = template(name)
    for side in SIDES:
        text = as_unicode(html.render(page=page(side)))
        size = len(text.encode())
        if size < LIMIT:
            write_text(out, text)
            return
    raise UserError(
        f"{what} would have {size / 1e6:.0f} MB and the limit is {LIMIT / 1e6:.0f}; {advice}"
    )


def _measured(folder: RunFolder, beside: Sequence[Path]) -> bool:
    if results_in(folder.path):
        return True
    if beside:
        raise UserError(
            f"{folder.path} has no evaluations to compare with those of others; evaluate it first"
        )
    return False


def _page(
    folder: RunFolder,
    analyses: Mapping[str, Entry[Analysis]],
    measured: Comparison | None,
    kinds: Sequence[str],
    side: int,
) -> Page:
    config, log = configuration_of(folder), folder.read_metrics()
    provenance = folder.read_provenance()
    parts, unreadable = [], {}
    for name, entry in analyses.items():
        if _exists(folder, name):
            try:
                parts.append(_part(name, entry, folder, side))
            except UserError as error:
                unreadable[name] = str(error)
    curves = next((part for part in parts if part.name == CURVES), None)
    strip = next((part.shelves for part in parts if part.name == NEIGHBOURS), ())
    below = tuple(
        replace(part, shelves=()) if part.name == NEIGHBOURS else part
        for part in parts
        if part.name != CURVES
    )
    script = inlined("page.js")
    count = provenance.get("data", {}).get("images")
    facts = {
        "Method": f"{kinds[0]}, views {config.views}",
        "Encoder": config.encoder.name,
        "Images": f"{count:,}" if count is not None else config.data.spec,
        "Size": f"{config.size} pixels",
        "Epochs": f"{config.epochs}, batches of {config.batch_size}",
        "Trained in": duration(log),
    }
    return Page(
        name=folder.path.resolve().name,
        verdict=measured.verdict if measured is not None else None,
        neighbours=strip,
        curves=curves,
        health=health(log, provenance.get("representation")),
        trained=training_summary(config, provenance, "trained")
        + ("" if folder.encoder.is_file() else " It is not finished."),
        facts=tuple((key, value) for key, value in facts.items() if value is not None),
        measured=main_measures(measured, kinds) if measured is not None else None,
        everything=all_measures(measured, kinds) if measured is not None else None,
        spaces=by_space(measured) if measured is not None else None,
        classifiers=of_classifiers(results_in(folder.path)),
        first=measured.runs[0] if measured is not None and len(measured.runs) > 1 else "",
        notes=measured.notes if measured is not None else (),
        measure=f"mast evaluate {quoted(folder.path)} --data SET",
        parts=below,
        missing=_missing(folder, analyses, unreadable),
        provenance=_provenance(folder, provenance),
        style=inlined("page.css"),
        script=script,
        policy=policy(script),
    )


def _arrays(folder: RunFolder, name: str) -> Path:
    return folder.analysis / f"{name}.npz"


def _exists(folder: RunFolder, name: str) -> bool:
    """Whether there are arrays and, what is written last, their figure."""
    file = _arrays(folder, name)
    return file.is_file() and file.with_suffix(".svg").is_file()


def _part(name: str, entry: Entry[Analysis], folder: RunFolder, side: int) -> Part:
    file, analysis = _arrays(folder, name), entry.kind()
    with understood(file):
        arrays = read_arrays(file)
        details, caption = analysis.details(arrays), _capital(analysis.caption(arrays))
        return Part(
            name=name,
            title=entry.title,
            headline=_capital(analysis.headline(arrays)),
            caption=caption,
            figure=_inline(file.with_suffix(".svg"), name, f"{entry.title}. {caption}"),
            table=of_grid(f"Numbers: {entry.title}", details.grid) if details.grid else None,
            shelves=tuple(shelf(gallery, side) for gallery in details.galleries),
            plane=plane(details.map, side) if details.map else None,
        )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _inline(file: Path, name: str, label: str) -> Markup:
    """A figure's file as an element.

    Raises:
        UserError: The file is damaged, or holds what no figure does.
    """
    figure = element(read_markup(file), name, label)
    if figure is None:
        raise UserError(f"{file} is not what `mast analyze` draws: make it again.")
    return figure


def _missing(
    folder: RunFolder, analyses: Mapping[str, Entry[Analysis]], unreadable: Mapping[str, str]
) -> tuple[Missing, ...]:
    """The analyses that are missing, and why.

    Args:
        folder: The run's, where `mast analyze` says why it could not make some.
        analyses: All.
        unreadable: Why some that it made cannot be shown.
    """
    reasons = {**folder.read_missing(), **unreadable}
    return tuple(
        Missing(
            name,
            entry.title,
            reasons.get(name, "Not computed yet."),
            "To compute it again:" if name in reasons else "To compute it:",
            entry.kind().command.format(name=name, run=quoted(folder.path)),
        )
        for name, entry in analyses.items()
        if name in unreadable or not _exists(folder, name)
    )


def _images(provenance: dict[str, Any]) -> str | None:
    data = provenance.get("data", {})
    return f"{data['images']:,} of {data.get('spec')}" if "images" in data else None


def _provenance(folder: RunFolder, provenance: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    facts = {
        "Run folder": folder.path,
        "Configuration": folder.config,
        "Images": _images(provenance),
        "Fingerprint": provenance.get("data", {}).get("fingerprint"),
        "Seed": provenance.get("seed"),
        "Device": _said("{processes} × {device}, {precision}", provenance),
        "Machine": _said("{processor}, {cores} cores", provenance),
        "Versions": ", ".join(f"{k} {v}" for k, v in provenance.get("versions", {}).items()),
        "Revision": provenance.get("git_revision"),
    }
    return tuple((key, str(value)) for key, value in facts.items() if value not in (None, ""))


def _said(template: str, facts: Mapping[str, Any]) -> str | None:
    """A sentence of some facts; None where one is not known."""
    try:
        return template.format_map(facts)
    except KeyError:
        return None
