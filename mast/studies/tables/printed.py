"""Tables as files: Markdown, CSV and LaTeX."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from mast.analyses import Grid
from mast.core.checkpoint import write_text
from mast.core.errors import UserError
from mast.core.files import read_text

# What LaTeX reads as a command; its own backslash first.
_ESCAPED = {"\\": r"\textbackslash ", "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$",
            "±": r"$\pm$", "×": r"$\times$", "λ": r"$\lambda$", "₁": "$_1$", "₂": "$_2$",
            "−": "$-$"}  # fmt: skip
ENDINGS = (".md", ".csv", ".tex")
BAR = r"\|"  # within a cell of Markdown


def refuse_something_else(stem: Path, title: str) -> None:
    """Refuse to overwrite files that `write` did not write.

    Beside its own is a folder of results, and its page begins with the title.

    Raises:
        UserError: Naming one of them.
    """
    page = stem.with_name(f"{stem.name}.md")
    ours = stem.is_dir() and (not page.exists() or read_text(page).startswith(f"# {title}\n"))
    for file in (stem.with_name(stem.name + ending) for ending in ENDINGS):
        if file.exists() and not ours:
            raise UserError(
                f"{file} is there and is not what this command writes: give another out"
            )


def write(
    stem: Path, title: str, grids: Mapping[str, Grid], notes: Sequence[str]
) -> tuple[Path, ...]:
    """Write tables beside each other: `<stem>.md` and `<stem>.tex` whole, `<stem>.csv` the first.

    Args:
        stem: The files without their endings.
        title: Of all of them.
        grids: By heading.
        notes: Below them.
    """
    texts = (
        markdown_page(title, grids, notes),
        as_csv(next(iter(grids.values()))),
        as_latex(title, grids, notes),
    )
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = []
    for ending, text in zip(ENDINGS, texts, strict=True):
        file = stem.with_name(stem.name + ending)
        write_text(file, text)
        files.append(file)
    return tuple(files)


def markdown_page(title: str, grids: Mapping[str, Grid], notes: Sequence[str]) -> str:
    """A page of Markdown."""
    parts = [f"# {title}"]
    for heading, grid in grids.items():
        parts += [f"## {heading[0].upper()}{heading[1:]}", as_markdown(grid)]
    parts.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts) + "\n"


def as_markdown(grid: Grid) -> str:
    """A table in Markdown."""
    head, *rows = (
        f"| {' | '.join(str(cell).replace('|', BAR) for cell in row)} |"
        for row in (grid.columns, *grid.rows)
    )
    return "\n".join([head, "|---" * len(grid.columns) + "|", *rows])


def as_csv(grid: Grid) -> str:
    """A table as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(grid.columns)
    writer.writerows(grid.rows)
    return text.getvalue()


def as_latex(title: str, grids: Mapping[str, Grid], notes: Sequence[str]) -> str:
    """Tables for LaTeX with the package booktabs."""
    parts = [f"% {title}"]
    for heading, grid in grids.items():
        lines = [
            r"\begin{table}",
            rf"\caption{{{escaped(title)}: {escaped(heading)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(grid.columns) - 1)}}}",
            r"\toprule",
            _latex_row(grid.columns),
            r"\midrule",
            *map(_latex_row, grid.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        parts.append("\n".join(lines))
    parts += [f"% {note}" for note in notes]
    return "\n\n".join(parts) + "\n"


def _latex_row(row: Sequence[str | float]) -> str:
    return " & ".join(escaped(str(cell)) for cell in row) + r" \\"


def escaped(text: str) -> str:
    """Text as LaTeX prints it."""
    return "".join(_ESCAPED.get(character, character) for character in text)
