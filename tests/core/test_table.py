"""Tables: words stay whole where a terminal is narrow, and no spreadsheet runs what is written."""

import csv
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from rich.console import Console

from mast.core.errors import UserError
from mast.core.files import out_file
from mast.core.table import SHOWN, Listing, Shown, TextTable, begins, safe_cell, write_table


class Whole(Shown):
    """A result that shows a table, and a command that no terminal may break."""

    def shown(self) -> Iterator[str | TextTable]:
        table = TextTable(title="[red]measured")
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


COLUMNS: dict[str, Any] = {
    "path": ["a.jpg", '"quoted", with a comma', "two\nlines"],
    "rank": [1, 2, 30],
    "cosine": [-0.123456789, math.nan, 1.0],
}


CSV = {".csv": begins("path", "rank")}


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        *((f"{start}1+2", f"'{start}1+2") for start in (*"=+-@＝", "\t", "\n")),
        ("1=", "1="),
        (" =1", "' =1"),
        ("'=1", "''=1"),  # which is not what =1 becomes
        ("'\t1", "''\t1"),
        ("a;=1", "a;'=1"),  # where a semicolon ends a cell
        ("a\n@b", "a\n'@b"),
        ("'a-b', c=1; d", "'a-b', c=1; d"),
    ],
)
def test_no_cell_is_a_formula(name: str, cell: str, tmp_path: Path) -> None:
    """A spreadsheet would run a cell that begins so; a single quote makes it text."""
    assert safe_cell(name) == cell
    write_table(tmp_path / "t.csv", {"path": [name], "cosine": [-0.5]})
    with (tmp_path / "t.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["path", "cosine"], [cell, "-0.5"]]


def test_both_kinds_hold_the_same(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", COLUMNS)
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == COLUMNS["path"]
    assert [row["cosine"] for row in rows] == ["-0.123457", "", "1"]
    assert '"30"' in (tmp_path / "t.csv").read_text()  # every cell is quoted
    write_table(tmp_path / "t.parquet", COLUMNS)
    table = pyarrow.parquet.read_table(tmp_path / "t.parquet")
    assert table["path"].to_pylist() == COLUMNS["path"]
    assert table["rank"].to_pylist() == COLUMNS["rank"]
    assert table["cosine"][0].as_py() == COLUMNS["cosine"][0]


def test_what_cannot_be_written_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "link.csv").symlink_to("folder.csv")
    with pytest.raises(UserError, match=r"out: expected a file, .*link\.csv is a folder"):
        out_file(tmp_path / "link.csv", CSV)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(UserError, match=r"pipe\.csv is a device or a pipe"):
        out_file(tmp_path / "pipe.csv", CSV)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*, as .*/file is not a writable folder"):
        out_file(tmp_path / "file" / "below" / "t.csv", CSV)
    out_file(tmp_path / "new" / "folder" / "t.csv", CSV)
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr("os.access", lambda place, mode: place != tmp_path)  # root may do all
    with pytest.raises(UserError, match=f"{tmp_path} is not a writable folder"):
        out_file(tmp_path / "new" / "t.csv", CSV)
    monkeypatch.setattr("mast.core.files.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'mast-ssl\[parquet\]'"):
        out_file("t.parquet", {".parquet": Path.is_file})


def test_a_table_is_known_by_its_first_columns(tmp_path: Path) -> None:
    for ending in (".csv", ".parquet"):
        write_table(tmp_path / f"t{ending}", COLUMNS)
        assert begins("path", "rank")(tmp_path / f"t{ending}")
        assert begins("path", ("cosine", "rank"))(tmp_path / f"t{ending}")
        assert not begins("path", ("cosine", "score"))(tmp_path / f"t{ending}")
        assert not begins("rank")(tmp_path / f"t{ending}")
        (tmp_path / f"none{ending}").write_bytes(b"\xff\0\n")
        assert not begins("path")(tmp_path / f"none{ending}")


def test_rows_are_a_sequence_and_become_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = Listing(COLUMNS, {"all": range(3)})
    assert len(listing) == 3
    assert listing[-1] == {"path": "two\nlines", "rank": 30, "cosine": 1.0}
    assert [row["rank"] for row in listing[:2]] == [1, 2]
    assert [row["path"] for row in listing] == COLUMNS["path"]
    frame = listing.to_pandas()
    assert frame["rank"].tolist() == COLUMNS["rank"]
    assert [*frame.columns] == [*COLUMNS]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"to_pandas needs `pip install 'mast-ssl\[pandas\]'`"):
        listing.to_pandas()


def test_a_notebook_shows_images_and_escapes_names() -> None:
    names = ["<b>.jpg", "gone.jpg"]
    columns = {"query": ["<b>.jpg"] * 2, "path": names}
    images = {"<b>.jpg": "data:image/jpeg;base64,AA"}
    listing = Listing(columns, {"Nearest to <b>.jpg": [0, 1]}, None, "query",
                      lambda name: images.get(name, ""))  # fmt: skip
    html = listing._repr_html_()
    assert html.count('<img src="data:image/jpeg;base64,AA">') == 2  # the query, and its neighbour
    assert "<td>gone.jpg" in html
    assert "<b>" not in html


def test_a_terminal_shows_the_first_rows_of_each_section() -> None:
    names = [f"[red]{at}.jpg" for at in range(SHOWN + 5)]
    listing = Listing({"path": names}, {"all": range(len(names)), "none": []}, Path("t.csv"))
    console = Console(width=60)
    with console.capture() as captured:
        for part in listing.shown():
            console.print(part)
    shown = captured.get()
    assert "[red]19.jpg" in shown  # no markup
    assert "[red]20.jpg" not in shown
    assert "and 5 more" in shown
    assert shown.split("none")[1].strip() == "t.csv"
