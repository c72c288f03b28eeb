"""The notebook of the manual runs from top to bottom, and its figures are figures."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

NOTEBOOK = Path(__file__).parents[1] / "docs" / "walkthrough.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last expression, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_walkthrough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    shown = []
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            shown.append(run_cell("".join(cell["source"]), names))
    figures = [value for value in shown if isinstance(value, Figure)]
    assert len(figures) == 3
    said = capsys.readouterr().out
    assert "most alike: " in said
    assert '"path","score","distance"' in said
    assert (tmp_path / "runs" / "walkthrough" / "report.html").is_file()
