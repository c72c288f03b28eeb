"""What `mast adapt` is worth, as `benchmarks/subspaces.py` measured it."""

import json
import statistics
from typing import Any

from mast.analyses import Grid
from mast.studies.tables.printed import as_markdown
from written.result_files import ROOT

FILE = ROOT / "benchmarks" / "results" / "subspaces.json"


def found() -> str:
    """Copies among other photos, and what was changed."""
    parts = []
    for measured in json.loads(FILE.read_text())["measured"]:
        for kind, heading in (("copies", "in a group with its photo"), ("told", "told right")):
            rows = {way.removeprefix(f"{kind}, ").removeprefix(f"{kind} "): draws
                    for way, draws in measured["rows"].items() if way.startswith(kind)}  # fmt: skip
            parts.append(_grid(heading, rows))
        parts.append(_caption(measured))
    return "\n\n".join(parts)


def _grid(heading: str, rows: dict[str, list[dict[str, float]]]) -> str:
    names = list(next(iter(rows.values()))[0])
    cells = tuple(
        (way, *(f"{statistics.fmean(draw[name] for draw in draws):.0f}" for name in names))
        for way, draws in rows.items()
    )
    return as_markdown(Grid((heading, *names), cells))


def _caption(measured: dict[str, Any]) -> str:
    setting, rows = measured["setting"], measured["rows"]
    draws = next(len(values) for way, values in rows.items() if way.startswith("told"))
    encoder = setting["encoder"].removeprefix("timm:tf_").partition(".")[0]
    return (
        f"Percent, of {setting['images']} photos of {' and '.join(setting['tested'])}; `{encoder}` "
        f"with ImageNet weights at {setting['size']} pixels, adapted on photos of "
        f"{setting['photos']}, the mean of {draws} draws of them (`benchmarks/subspaces.py`)."
    )
