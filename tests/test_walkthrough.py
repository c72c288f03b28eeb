"""The notebook of the manual runs from top to bottom, and the file has what it shows."""

import ast
import base64
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

pytestmark = pytest.mark.slow

NOTEBOOK = Path(__file__).parents[1] / "docs" / "walkthrough.ipynb"
LARGEST, LARGEST_FIGURE = 500_000, 70_000  # bytes
MANY, FEW = "toys@train:4096", "toys@train:512"  # images that are learned from
NOT_INSTALLED = "raise AssertionError('mast is installed')"


def code_cells() -> list[dict[str, Any]]:
    """The code cells; the source of each is one string."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return [c | {"source": "".join(c["source"])} for c in cells if c["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last expression, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def shown(cell: dict[str, Any]) -> set[str]:
    """What the file says that a cell shows: a figure, printed text."""
    kinds = {"stream": "printed", "execute_result": "figure"}
    outputs = [o for o in cell["outputs"] if o.get("name") != "stderr"]
    return {kinds[o["output_type"]] for o in outputs if o["output_type"] in kinds}


def test_the_walkthrough_runs_and_the_file_has_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    said = ""
    kinds = []
    cells = code_cells()
    assert any(MANY in cell["source"] for cell in cells)
    for cell in cells:
        source = re.sub(r"%pip .*", NOT_INSTALLED, cell["source"]).replace(MANY, FEW)
        value = run_cell(source, names)
        printed = capsys.readouterr().out
        said += printed
        kinds.append({"figure"} if isinstance(value, Figure) else {"printed"} if printed else set())
        assert shown(cell) == kinds[-1], cell["source"]
    assert kinds.count({"figure"}) == 3
    assert "points" in said


def test_the_outputs_of_the_walkthrough_are_of_its_code() -> None:
    cells = code_cells()
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    digest = hashlib.sha256("\0".join(cell["source"] for cell in cells).encode()).hexdigest()
    metadata = json.loads(NOTEBOOK.read_text())["metadata"]
    assert metadata["executed"] == digest, "run make notebook"


def test_the_outputs_of_the_walkthrough_are_small_and_of_no_machine() -> None:
    text = NOTEBOOK.read_text()
    assert len(text) < LARGEST
    assert re.findall(r"/(?:tmp|home|root|usr|work|Users)/", text) == []
    for output in (output for cell in code_cells() for output in cell["outputs"]):
        if output["output_type"] == "execute_result":
            png = base64.b64decode("".join(output["data"]["image/png"]))
            assert len(png) < LARGEST_FIGURE
            Image.open(io.BytesIO(png)).verify()
