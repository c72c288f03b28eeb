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

    Its own have a folder of results beside them, and a page that begins with the title.
    """
    page = stem.with_name(f"{stem.name}.md")
    ours = stem.is_dir() and (not page.exists() or read_text(page).startswith(f"# {title}\n"))
    for file in (stem.with_name(stem.name + ending) for ending in ENDINGS):
        if file.exists() and not ours:
            raise UserError(f"{file} exists and is not what this command writes: give another out")


def write(
    stem: Path, title: str, grids: Mapping[str, Grid], notes: Sequence[str]
) -> tuple[Path, ...]:
    """Write tables by heading: `<stem>.md` and `<stem>.tex` whole, `<stem>.csv` the first."""
    page = [f"# {title}"]
    for heading, grid in grids.items():
        page += [f"## {heading[0].upper()}{heading[1:]}", as_markdown(grid)]
    page.append("\n".join(f"- {note}" for note in notes))
    texts = {
        ".md": "\n\n".join(page) + "\n",
        ".csv": as_csv(next(iter(grids.values()))),
        ".tex": as_latex(title, grids, notes),
    }
    stem.parent.mkdir(parents=True, exist_ok=True)
    for ending, text in texts.items():
        write_text(stem.with_name(stem.name + ending), text)
    return tuple(stem.with_name(stem.name + ending) for ending in texts)


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
