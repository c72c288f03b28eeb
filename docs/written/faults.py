"""What came of attacks on every command, as `make faults` counted it."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from mast.analyses import Grid
from written.result_files import ROOT, link_table

FOLDER = ROOT / "benchmarks" / "results"
KINDS = {
    "options": "any value for one to three options",
    "files": "a damaged input file",
    "disk": "a full disk, or a read-only folder",
    "kill": "interrupted, once or twice",
    "lies": "a well-formed file with misleading content",
    "names": "a name that a terminal, a page or a table could execute",
    "ambient": "unusual process state or environment variables",
    "writers": "two writers at once, or something else at the target",
    "hostile": "options of an encoder, and values in place of tensors",
}
VERDICTS = {
    "result": "a result",
    "refused": "one-line error",
    "equal": "equal after a rerun",
    "code": "ran code",
    "traceback": "traceback",
    "hang": "hang",
    "wrong": "wrong",
}


def faults() -> str:
    """The last counts, and those of the version before the attacks."""
    now, before = (
        json.loads((FOLDER / f"{name}.json").read_text()) for name in ("faults", "faults-before")
    )
    verdicts = [name for name in VERDICTS if name != "code" or _has_canary(now)]
    rows = [_row(KINDS[kind], now, [kind], verdicts) for kind in KINDS if kind in now["counts"]]
    rows += [_row("all", now, [*KINDS], verdicts), _row("all, before", before, [*KINDS], verdicts)]
    columns = ("what was done", "cases", *(VERDICTS[name] for name in verdicts))
    return (
        f"By kind of attack: {link_table('faults', Grid(columns, tuple(rows)))} "
        f"(revision {now['provenance']['git_revision']})."
    )


def _has_canary(result: dict[str, Any]) -> bool:
    """Whether the program looked for code that was run; earlier ones did not."""
    return "lies" in result["counts"]


def _row(
    text: str, result: dict[str, Any], kinds: Sequence[str], verdicts: Sequence[str]
) -> tuple[str, ...]:
    counts = Counter[str]()
    for kind in kinds:
        counts.update(result["counts"].get(kind, {}))
    of_all = "," if len(kinds) > 1 else ""  # thousands
    cells = (f"{counts[name]:{of_all}}" if name != "code" or _has_canary(result) else "–"
             for name in verdicts)  # fmt: skip
    return (text, f"{counts.total():{of_all}}", *cells)
