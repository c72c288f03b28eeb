"""What came of attacks on every command, as `make faults` counted it."""

import json
from typing import Any

from mast.analyses import Grid
from mast.studies.tables.printed import as_markdown
from written.result_files import ROOT

FOLDER = ROOT / "benchmarks" / "results"
KINDS = {
    "options": "any value for one to three options",
    "files": "damage in a file that is read",
    "disk": "no room, or a read-only folder",
    "kill": "stopped in the middle, once or twice",
}
VERDICTS = {
    "result": "a result",
    "refused": "one line",
    "equal": "equal after it ran again",
    "traceback": "traceback",
    "hang": "hang",
    "wrong": "wrong",
}


def faults() -> str:
    """The last counts, beside those of the version before the attacks began."""
    now, before = (
        json.loads((FOLDER / f"{name}.json").read_text()) for name in ("faults", "faults-before")
    )
    rows = [_row(text, now, kind) for kind, text in KINDS.items()]
    rows += [_total("all", now), _total("all, before", before)]
    grid = Grid(("what was done", "cases", *VERDICTS.values()), tuple(rows))
    return (
        f"{as_markdown(grid)}\n\n"
        f"`make faults SECONDS={now['seconds']:.0f}`, {now['jobs']} at a time, on "
        f"{now['provenance']['processor']} (revision {now['provenance']['git_revision']}; before: "
        f"{before['provenance']['git_revision']}, {before['seconds']:.0f} seconds). A fault that "
        "is reported in one line is counted as a traceback."
    )


def _row(text: str, result: dict[str, Any], kind: str) -> tuple[str, ...]:
    counts = result["counts"].get(kind, {})
    return (text, str(sum(counts.values())), *(str(counts.get(name, 0)) for name in VERDICTS))


def _total(text: str, result: dict[str, Any]) -> tuple[str, ...]:
    columns = zip(*(_row(text, result, kind)[1:] for kind in KINDS), strict=True)
    return (text, *(f"{sum(map(int, column)):,}" for column in columns))
