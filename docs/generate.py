"""Write the results in the documents from the result files that studies wrote.

    python docs/generate.py

docs/results.md is written whole; in the others the results stand between `<!-- NAME -->` and
`<!-- /NAME -->`.
"""

from pathlib import Path

from written.detection import detection
from written.forgetting import demonstration, forgetting
from written.insight import advice, findings, studies, uncertain
from written.photos import compared_on_photos, does_it_help, photos, regimes
from written.result_files import ROOT

from mast.core.checkpoint import write_text


def documents() -> dict[Path, str]:
    """Every document with the results that the files hold."""
    head = "# Results\n\nWritten by `docs/generate.py` from result files.\n\n"
    readme, insight, studied, detected = (
        ROOT / name
        for name in ("README.md", "docs/insight.md", "docs/studies.md", "docs/detection.md")
    )
    parts = {
        "advice": advice(),
        "uncertain": uncertain(),
        "findings": findings("cifar_exempt"),
    }
    on_generated = forgetting()
    on_photos = "\n\n".join(
        ["## Photos", compared_on_photos(), regimes(), does_it_help(), photos()]
    )
    return {
        ROOT / "docs" / "results.md": f"{head}{on_generated}\n\n{on_photos}\n",
        readme: between(
            readme,
            {
                "demo": demonstration(),
                "results": f"{compared_on_photos()}\n\n{photos()}",
            },
        ),
        insight: between(insight, parts),
        studied: between(studied, {"studies": studies()}),
        detected: between(detected, {"detection": detection()}),
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
