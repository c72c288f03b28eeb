"""Write the results in the documents from the result files that programs wrote.

    python docs/generate.py

The help of every command, which `mast COMMAND --help` reads, is written likewise from what the
command's function says.

docs/results.md, docs/index.md and docs/reference.md are written whole; in the others the results
stand between `<!-- NAME -->` and `<!-- /NAME -->`.
"""

from pathlib import Path

from written.clean import label_errors, search
from written.detection import detection
from written.faults import faults
from written.forgetting import demonstration, forgetting
from written.insight import advice, findings, studies, uncertainty
from written.intervals import coverage
from written.invariances import other_encoders, ways, ways_of_runs
from written.known import known
from written.methods import methods, oracles
from written.path import path
from written.photos import (
    compared_on_photos,
    does_it_help,
    found_on_photos,
    photos,
    regimes,
)
from written.result_files import ROOT
from written.scale import kept, many, nodes, scale, state
from written.site import home, pretraining, reference, results
from written.starts import starts
from written.subspaces import found, pairs, wanted
from written.tables import pooling, small, table6, tables

from mast.cli.form import file_of
from mast.cli.options import form_of
from mast.cli.verbs import TOPICS, VERBS
from mast.core.checkpoint import write_text


def documents() -> dict[Path, str]:
    """Every document with the results that the files hold."""
    head = "# Results\n\nWritten by `docs/generate.py` from result files."
    (readme, demo, insight, studied, detected, evaluated, reliable, cleaned, started, used,
     others, tabled, scaled) = (
        ROOT / name
        for name in (
            "README.md", "docs/demo.md", "docs/insight.md", "docs/studies.md", "docs/detection.md",
            "docs/evaluation.md", "docs/reliability.md", "docs/clean.md", "docs/start.md",
            "docs/use.md", "docs/methods.md", "docs/tables.md",
            "docs/scale.md",
        )
    )  # fmt: skip
    parts = {
        "advice": advice(),
        "uncertainty": uncertainty(),
        "findings": findings("cifar_exempt"),
    }
    on_photos = [compared_on_photos(), regimes()]
    in_full = "\n\n".join(
        [head, forgetting(), "## Photos", on_photos[0], found_on_photos(), on_photos[1],
         does_it_help(), photos()]
    )  # fmt: skip
    return {
        ROOT / "docs" / "results.md": f"{in_full}\n",
        readme: between(readme, {"help": pretraining(), "results": results()}),
        demo: between(demo, {"demo": demonstration()}),
        ROOT / "docs" / "index.md": home(),
        ROOT / "docs" / "reference.md": reference(),
        insight: between(insight, parts),
        studied: between(studied, {"studies": studies()}),
        detected: between(detected, {"detection": detection()}),
        evaluated: between(
            evaluated,
            {
                "coverage": coverage(),
                "known": known(),
                "ways": ways(),
                "pairs": pairs(),
                "encoders": other_encoders(),
                "runs": ways_of_runs(),
            },
        ),
        reliable: between(reliable, {"faults": faults()}),
        started: between(started, {"starts": starts()}),
        used: between(used, {"path": path()}),
        others: between(others, {"methods": methods(), "oracles": oracles()}),
        tabled: between(
            tabled,
            {"tables": tables(), "table6": table6(), "small": small(), "pooling": pooling()},
        ),
        scaled: between(
            scaled,
            {"scale": scale(), "many": many(), "kept": kept(), "nodes": nodes(), "state": state()},
        ),
        cleaned: between(
            cleaned,
            {
                "search": search(),
                "found": found(),
                "wanted": wanted(),
                "label_errors": label_errors(),
            },
        ),
    }


def helps() -> dict[Path, str]:
    """What every command takes, as its help shows it."""
    names = [*VERBS, *(f"show {topic}" for topic in TOPICS)]
    return {file_of(name): form_of(name).text() for name in names}


def between(document: Path, parts: dict[str, str]) -> str:
    """A document with what stands between its marks replaced."""
    text = document.read_text()
    for mark, part in parts.items():
        before, rest = text.split(f"<!-- {mark} -->")
        after = rest.split(f"<!-- /{mark} -->")[1]
        text = f"{before}<!-- {mark} -->\n{part}\n<!-- /{mark} -->{after}"
    return text


def main() -> None:
    for document, text in (documents() | helps()).items():
        write_text(document, text)


if __name__ == "__main__":
    main()
