"""Write the results in the documents from the result files that programs wrote.

    python docs/generate.py

docs/results.md is written whole; in the others the results stand between `<!-- NAME -->` and
`<!-- /NAME -->`.
"""

from pathlib import Path

from written.clean import copies, label_errors, search
from written.detection import detection
from written.faults import faults
from written.forgetting import demonstration, forgetting
from written.insight import advice, findings, studies, uncertainty
from written.intervals import coverage
from written.photos import compared_on_photos, does_it_help, found_on_photos, photos, regimes
from written.result_files import ROOT

from mast.core.checkpoint import write_text


def documents() -> dict[Path, str]:
    """Every document with the results that the files hold."""
    head = "# Results\n\nWritten by `docs/generate.py` from result files."
    readme, insight, studied, detected, evaluated, reliable, cleaned = (
        ROOT / name
        for name in (
            "README.md", "docs/insight.md", "docs/studies.md", "docs/detection.md",
            "docs/evaluation.md", "docs/reliability.md", "docs/clean.md",
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
        readme: between(
            readme,
            {
                "demo": demonstration(),
                "results": "\n\n".join([*on_photos, photos()]),
            },
        ),
        insight: between(insight, parts),
        studied: between(studied, {"studies": studies()}),
        detected: between(detected, {"detection": detection()}),
        evaluated: between(evaluated, {"coverage": coverage()}),
        reliable: between(reliable, {"faults": faults()}),
        cleaned: between(
            cleaned, {"search": search(), "copies": copies(), "label_errors": label_errors()}
        ),
    }


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
