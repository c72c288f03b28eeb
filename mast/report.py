"""One self-contained page of a run, from the files in its folder alone."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from mast.analyze import ANALYSES
from mast.core.checkpoint import write_text
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.evaluate import Comparison, compare

TEMPLATE = Path(__file__).with_name("report.html.jinja")


@dataclass(frozen=True)
class Part:
    """One analysis on the page.

    Attributes:
        name: Of the analysis.
        title: Its heading.
        text: What to see, or why there is nothing.
        image: Its figure as base64 of an SVG; None where there is none.
    """

    name: str
    title: str
    text: str
    image: str | None


def report(run: str | Path, beside: Sequence[str] = (), out: Path | None = None) -> Path:
    """Write a run's page: the answer first, then its figures; it needs no network and no scripts.

    Args:
        run: A run folder; what `mast evaluate` and `mast analyze` wrote there is shown.
        beside: Other run folders whose evaluations stand beside this one's.
        out: The page; `report.html` in the run folder if not given.

    Returns:
        The file.

    Raises:
        UserError: No run at that place, or it cannot be written.
    """
    from jinja2 import Environment

    folder = RunFolder(run).require()
    measured = compare([folder.path, *beside]) if _measured(folder, beside) else None
    template = Environment(autoescape=True, trim_blocks=True).from_string(TEMPLATE.read_text())
    log = folder.read_metrics()
    page = template.render(
        name=folder.path.name,
        answer=_answer(folder, measured),
        warnings=[line["warning"] for line in log if "warning" in line],
        runs=measured.runs if measured is not None else (),
        rows=measured.rows if measured is not None else (),
        notes=measured.notes if measured is not None else (),
        parts=[_part(name, folder) for name in ANALYSES],
        facts=_facts(folder),
    )
    out = out or folder.path / "report.html"
    write_text(out, page)
    return out


def _measured(folder: RunFolder, beside: Sequence[str]) -> bool:
    if any(folder.evaluations.glob("*.json")):
        return True
    if beside:
        raise UserError(
            f"{folder.path} has no evaluations to stand beside others; measure it first: "
            f"mast evaluate {folder.path} --data SET"
        )
    return False


def _answer(folder: RunFolder, measured: Comparison | None) -> str:
    """What was trained, on what, and how good it is, in a sentence or two."""
    config = yaml.safe_load(folder.config.read_text())
    text = (
        f"{config['method'].upper()} with {config['encoder']['name']} on {config['data']['spec']}, "
        f"{config['epochs']} epochs at {config['size']} pixels."
    )
    if not folder.encoder.is_file():
        text += " It is not finished."
    best = [row for row in measured.rows if row.about[3] == "top1"] if measured is not None else []
    for row in best[:3]:
        protocol, name, target, _ = row.about
        said = [
            f"{value:.1f} % ({run})"
            for run, value in zip(measured.runs if measured else (), row.values, strict=True)
            if value is not None
        ]
        text += f" {protocol} on {name}, {target}: {', '.join(said)}."
    return text if best else f"{text} Nothing has been measured yet."


def _part(name: str, folder: RunFolder) -> Part:
    analysis, arrays = ANALYSES[name](), folder.analysis / f"{name}.npz"
    if not arrays.is_file():
        missing = f"There is none yet: mast analyze {folder.path}"
        return Part(name, analysis.title, missing, None)
    with np.load(arrays) as kept:
        text = analysis.caption(dict(kept))
    image = base64.b64encode(arrays.with_suffix(".svg").read_bytes()).decode()
    return Part(name, analysis.title, text, image)


def _facts(folder: RunFolder) -> list[tuple[str, str]]:
    if not folder.provenance.is_file():
        return [("run folder", str(folder.path))]
    known = json.loads(folder.provenance.read_text())
    data = known.get("data", {})
    facts = {
        "images": f"{data.get('images')} of {data.get('spec')}",
        "fingerprint": data.get("fingerprint"),
        "seed": known.get("seed"),
        "device": f"{known.get('processes')} x {known.get('device')}, {known.get('precision')}",
        "machine": f"{known.get('processor')}, {known.get('cores')} cores",
        "versions": ", ".join(f"{k} {v}" for k, v in known.get("versions", {}).items()),
        "revision": known.get("git_revision"),
        "configuration": str(folder.config),
    }
    return [(key, str(value)) for key, value in facts.items() if value is not None]
