"""How every benchmark measures: alternating rounds in one process, medians, a result file."""

import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from mast.core.checkpoint import write_json, write_text
from mast.core.display import console
from mast.core.run import provenance

sys.path.append(str(Path(__file__).parents[1]))  # of `paper`
RESULTS = Path(__file__).parent / "results"
PEERS = ("kornia", "lightly", "albumentationsx", "scikit-learn")

Work = Mapping[str, Callable[[], object]]


def alternate(work: Work, rounds: int, device: torch.device) -> dict[str, dict[str, float]]:
    """Time every entry once a round, so that a slow minute of the machine hits all alike.

    Each round begins with another entry, as what ran before may leave traces.

    Args:
        work: What to time, by name.
        rounds: Rounds that count; one before them warms up.
        device: Waited for after every call.

    Returns:
        Median, smallest and largest seconds of each entry.
    """
    seconds: dict[str, list[float]] = {name: [] for name in work}
    names = list(work)
    for round_number in range(rounds + 1):
        for name in names[round_number % len(names) :] + names[: round_number % len(names)]:
            started = time.perf_counter()
            work[name]()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if round_number:
                seconds[name].append(time.perf_counter() - started)
    return {
        name: {"median": statistics.median(values), "min": min(values), "max": max(values)}
        for name, values in seconds.items()
    }


def report(
    area: str,
    device: torch.device,
    setting: dict[str, Any],
    tables: Mapping[str, dict[str, dict[str, float]]],
    unit: str,
    reference: str,
    **more: Any,
) -> None:
    """Print the tables and write `results/<area>-<device>.json`.

    Args:
        area: What was measured.
        device: Where.
        setting: Shapes, threads, rounds.
        tables: For every case, the seconds of every entry, as from `alternate`.
        unit: What one value stands for, such as "ms a view"; seconds are printed in milliseconds.
        reference: The entry that ratios are taken to: how many times its time an entry needs.
        more: What else was measured, by name; printed and written as it is.
    """
    for case, entries in tables.items():
        table = Table(title=f"{area}: {case} ({unit})", title_justify="left")
        for column in ("", "median", "smallest", "largest", f"times {reference}"):
            table.add_column(column, justify="left" if column == "" else "right")
        for name, seconds in entries.items():
            numbers = (f"{1e3 * seconds[key]:.3f}" for key in ("median", "min", "max"))
            ratio = seconds["median"] / entries[reference]["median"]
            table.add_row(name, *numbers, f"{ratio:.2f}")
        console.print(table)
    for name, values in more.items():
        console.print(name, values)
    result = {
        "setting": setting,
        "unit": f"seconds; printed as {unit}",
        "reference": reference,
        "cases": {
            case: {
                name: seconds | {"ratio": seconds["median"] / entries[reference]["median"]}
                for name, seconds in entries.items()
            }
            for case, entries in tables.items()
        },
        **more,
        "provenance": provenance() | {"peers": _peer_versions()},
    }
    write_json(RESULTS / f"{area}-{device.type}.json", result)


def report_setting(file: Path, setting: dict[str, Any], rows: Mapping[str, Any]) -> None:
    """Write the rows of one setting to a file of several, in place of its earlier rows.

    Args:
        file: Of all settings.
        setting: What tells this one from others.
        rows: What was measured.
    """
    before = json.loads(file.read_text())["measured"] if file.is_file() else []
    others = [each for each in before if each["setting"] != setting]
    now = {"setting": setting, "rows": rows, "provenance": provenance()}
    text = json.dumps({"measured": [*others, now]}, indent=1, allow_nan=False)
    innermost = re.compile(r"\{[^{}]*\}")  # in a line each, or a table has a hundred thousand
    write_text(file, innermost.sub(lambda each: " ".join(each[0].split()), text) + "\n")


def _peer_versions() -> dict[str, str]:
    installed = {}
    for name in PEERS:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed
