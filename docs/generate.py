"""Write the results in the documents from the result files that programs wrote.

    python docs/generate.py

docs/index.md, docs/reference.md and docs/tables/*.csv are written whole; in the others the results
stand between `<!-- NAME -->` and `<!-- /NAME -->`.
"""

from collections.abc import Iterable
from pathlib import Path

from written.beyond import beyond
from written.clean import edits, label_errors, page, photos_measured, search
from written.detection import detection
from written.faults import faults
from written.forgetting import forgetting
from written.insight import advice, uncertainty
from written.intervals import coverage
from written.invariances import ways
from written.known import known
from written.methods import methods, oracles, splits
from written.path import path
from written.photos import photos
from written.result_files import ROOT, WHOLE
from written.scale import many, nodes, scale
from written.site import controls, copies, home, pretrained, reference
from written.starts import starts
from written.subspaces import found, pairs
from written.tables import candidates, elsewhere, fair, label_free, small, table6, tables

from mast.core.checkpoint import write_text

PARTS = {
    "README.md": {"copies": copies, "pretrained": pretrained},
    "docs/start.md": {"path": path},
    "docs/data.md": {"splits": splits},
    "docs/pretraining.md": {
        "starts": starts, "nodes": nodes, "scale": scale, "many": many,
    },
    "docs/clean.md": {
        "photos_measured": photos_measured, "ways": ways, "pairs": pairs, "search": search,
        "page": page, "edits": edits,
        "found": found, "label_errors": label_errors,
    },
    "docs/evaluation.md": {"known": known, "coverage": coverage, "detection": detection},
    "docs/insight.md": {"advice": advice, "uncertainty": uncertainty},
    "docs/method.md": {"methods": methods, "oracles": oracles},
    "docs/results.md": {
        "copies": copies, "controls": controls, "fair": fair, "beyond": beyond,
        "candidates": candidates, "label_free": label_free, "elsewhere": elsewhere, "small": small,
        "photos": photos, "forgetting": forgetting, "tables": tables, "table6": table6,
    },
    "docs/reliability.md": {"faults": faults},
}  # fmt: skip


def documents(names: Iterable[str] = PARTS) -> dict[Path, str]:
    """Documents with the results that the files hold, and the tables whole."""
    written = {
        ROOT / name: between(ROOT / name, {mark: part() for mark, part in PARTS[name].items()})
        for name in names
    }
    if (readme := ROOT / "README.md") in written:
        written[ROOT / "docs" / "index.md"] = home(written[readme])
        written[ROOT / "docs" / "reference.md"] = reference()
    return written | WHOLE


def between(document: Path, parts: dict[str, str]) -> str:
    """A document with what stands between its marks replaced."""
    text = document.read_text()
    for mark, part in parts.items():
        before, rest = text.split(f"<!-- {mark} -->")
        after = rest.split(f"<!-- /{mark} -->")[1]
        text = f"{before}<!-- {mark} -->\n{part}\n<!-- /{mark} -->{after}"
    return text


def main() -> None:
    for document, text in documents().items():
        write_text(document, text)


if __name__ == "__main__":
    main()
