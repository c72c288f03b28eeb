"""Run the notebook of the manual, and write what it shows into it.

    pip install -e '.[docs]'
    python docs/notebook.py

A fresh kernel runs docs/walkthrough.ipynb in an empty folder, in two minutes. All that it shows is
kept but for what another run would show otherwise: lines of progress, which tell the time, and
the version of Python. Figures get a palette, which makes them a third as large. A digest of the
code is kept too, by which tests/test_walkthrough.py sees that the outputs are of this code.
"""

import base64
import hashlib
import io
import os
import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

from mast.core.checkpoint import write_text

NOTEBOOK = Path(__file__).parent / "walkthrough.ipynb"
PROGRESS = re.compile(r"\b[\d,]+ of [\d,]+\b| so far\b")
STYLE = re.compile(r"\x1b\[[\d;]*m")
COLORS = 96
SECONDS = 600  # at most a cell
# So small an encoder gains little by a second thread, and any machine has one. tqdm asks for
# widgets, which nothing here shows.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore:IProgress not found"}


def execute(notebook: nbformat.NotebookNode) -> None:
    """Run all cells from top to bottom, in an empty folder and with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(ENVIRONMENT, XDG_CACHE_HOME=f"{folder}/cache")
        NotebookClient(
            notebook, timeout=SECONDS, record_timing=False, resources={"metadata": {"path": folder}}
        ).execute()
        for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
            if output.get("name") == "stderr" and "warning" in output.text.lower():
                raise SystemExit(f"the notebook warns:\n{output.text}")
            if folder in str(output) or str(Path.home()) in str(output):
                raise SystemExit(f"the notebook shows a path of this machine:\n{output}")


def kept(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs of a cell that another run shows too, and small."""
    shown = []
    for output in outputs:
        data = output.get("data", {})
        if output.get("name") == "stderr":
            lines = output.text.splitlines(keepends=True)
            output.text = "".join(line for line in lines if not PROGRESS.search(line))
            if not output.text.strip():
                continue
        if "text/plain" in data:
            data["text/plain"] = STYLE.sub("", data["text/plain"])
        if "image/png" in data:
            data["image/png"] = with_palette(data["image/png"])
        shown.append(output)
    return shown


def with_palette(png: str) -> str:
    """A figure in so many colors, in base64 as it was."""
    small = io.BytesIO()
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    image.quantize(COLORS, kmeans=1).save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def digest_of(sources: list[str]) -> str:
    """Of code cells, to tell later whether they are still those that were run."""
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def main() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    execute(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        cell.outputs = kept(cell.outputs)
        cell.metadata = {}
    notebook.metadata["language_info"] = {"name": "python"}
    notebook.metadata["executed"] = digest_of([cell.source for cell in code])
    nbformat.validate(notebook)
    write_text(NOTEBOOK, f"{nbformat.writes(notebook)}\n")


if __name__ == "__main__":
    main()
