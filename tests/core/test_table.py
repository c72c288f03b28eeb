"""Tables keep their words: what fits stays side by side, and the rest follows below."""

import io
from collections.abc import Iterator

import pytest
from rich.box import SIMPLE
from rich.console import Console

from mast.core.table import FittedTable, Shown


def shown(table: FittedTable, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def fruit(**options: object) -> FittedTable:
    table = FittedTable(1, title="fruit", caption="by weight", **options)
    table.add_column("name")
    for number in ("first", "second", "third"):
        table.add_column(number, justify="right")
    table.add_column("what it is")
    table.add_row("apple", "1.0 [0.5, 1.5]", "2.0 [1.5, 2.5]", "3.0", "red or green")
    table.add_row("banana", "-1.0 [-2.5, 0.5]", "2.0", "3.0 [2.5, 3.5]", "yellow")
    return table


def test_what_fits_is_one_table() -> None:
    lines = shown(fruit(), 100)
    assert sum("apple" in line for line in lines) == 1
    assert len({len(line.rstrip()) for line in lines[1:-1]}) == 1


def test_text_folds_between_words_before_anything_moves() -> None:
    lines = shown(fruit(), 75)
    assert sum("apple" in line for line in lines) == 1
    (first,) = [at for at, line in enumerate(lines) if "apple" in line]
    assert "red or" in lines[first]
    assert "green" in lines[first + 1]


@pytest.mark.parametrize(("width", "parts"), [(60, 2), (40, 3), (30, 4)])
@pytest.mark.parametrize("options", [{}, {"box": SIMPLE, "padding": 0}])
def test_columns_that_do_not_fit_follow_below(
    width: int, parts: int, options: dict[str, object]
) -> None:
    lines = shown(fruit(**options), width)
    assert max(map(len, lines)) <= width
    if not options:
        assert sum("apple" in line for line in lines) == parts
    assert sum("fruit" in line for line in lines) == 1
    assert "by weight" in lines[-1]
    text = "\n".join(lines)
    for number in ("1.0 [0.5, 1.5]", "-1.0 [-2.5, 0.5]", "2.0 [1.5, 2.5]", "3.0 [2.5, 3.5]"):
        assert number in text


def test_sections_stay() -> None:
    table = fruit()
    plain = len(shown(table, 100))
    table.rows[0].end_section = True
    assert len(shown(table, 100)) == plain + 1


def test_a_word_wider_than_the_terminal_is_folded() -> None:
    table = FittedTable(1)
    table.add_column("name")
    table.add_column("value", justify="right")
    table.add_row("x" * 50, "1.0")
    assert "".join(shown(table, 30)).count("x") == 50


class Whole(Shown):
    """A result that shows a table, and a command that no terminal may break."""

    def shown(self) -> Iterator[str | FittedTable]:
        table = FittedTable(1, title="[red]measured")
        table.add_column("name")
        table.add_row("\x1b[31m<b>")
        yield table
        yield f"mast {'x' * 200} <i>"


def test_a_result_is_shown_in_an_interpreter_as_on_the_command_line() -> None:
    text = repr(Whole())
    assert text.splitlines()[-1] == f"mast {'x' * 200} <i>"
    assert "[red]measured" in text
    assert r"\x1b[31m<b>" in text
    html = Whole()._repr_html_()
    assert "<b>" not in html
    assert html.endswith(" &lt;i&gt;</pre>")
