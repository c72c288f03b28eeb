"""What the documents show works: commands parse, Python runs, links and files exist."""

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import generate
import pytest

from mast.analyses import ANALYSES
from mast.cli import main
from mast.cli.verbs import MAST
from mast.cli.words import arguments_of
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.evaluation.protocols import EVALUATORS
from paper.__main__ import PROGRAM
from paper.analyses import FIGURES

ROOT = Path(__file__).parent.parent
MANUAL = ROOT / "docs" / "evaluation.md"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands() -> list[str]:
    """Every `mast …` or `python -m paper …` line in a bash block or in backquotes."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text()
        for block in re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL):
            found += re.findall(
                r"(?:^|&& |mast\.cli )((?:mast |pretrain |python -m paper ).*?)(?:\s+# .*)?$",
                block,
                flags=re.M,
            )
        found += re.findall(r"`((?:mast|python -m paper) [a-z]+ [^`]*)`", text)
    return sorted({re.sub(r"^pretrain", "mast pretrain", " ".join(line.split())) for line in found})


@pytest.mark.parametrize("command", commands())
def test_commands_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = MAST if command.startswith("mast ") else PROGRAM
    verb, *words = shlex.split(command.removeprefix(f"{program.name} "))
    if verb == "show":
        verb, *words = f"show {words[0]}", *words[1:]
    assert main([*verb.split(), "--help"], program) == 0
    shown = capsys.readouterr().out
    for option in re.findall(r" (--[a-z_.]+)", command):
        assert option in shown
    refused = None
    try:
        arguments_of(verb, [word for word in words if word != "--help"], program)
    except UserError as error:
        refused = str(error)
    # Prose shortens: `--config`.
    assert refused is None or re.search(r"requires an argument|expected one run", refused)


RESULTS = pytest.param("docs/results.md", marks=pytest.mark.slow)  # hundreds of intervals


@pytest.mark.parametrize("name", [RESULTS, *sorted(generate.PARTS.keys() - {"docs/results.md"})])
def test_results_are_those_of_the_result_files(name: str) -> None:
    for document, text in generate.documents([name]).items():
        assert document.read_text() == text, f"{document.name}: run python docs/generate.py"


def test_the_manual_lists_every_protocol_and_analysis() -> None:
    manual = MANUAL.read_text()
    listed = re.findall(r"^\| `(\w+)` \| (.*?) \|", manual, re.M)
    titles = [(name, row.title) for name, row in EVALUATORS.items()]
    assert [row for row in listed if row[0] in EVALUATORS] == titles
    listed = re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "insight.md").read_text(), re.M)
    assert listed[: len(ANALYSES) + len(FIGURES)] == [*ANALYSES, *FIGURES]


def python_of(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def test_python_of_readme_and_manual_runs(
    trained: Callable[..., RunFolder], photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a small run in place of their encoders."""
    monkeypatch.chdir(tmp_path)
    trained("plain", tmp_path / "runs" / "photos")
    shutil.copytree(photos / "val", "photos")
    shutil.copy(next((photos / "test").rglob("*.jpg")), "photos/cat.jpg")
    here = {
        "mast.Encoder()": 'mast.Encoder("runs/photos")', "runs/flowers": "runs/photos",
        '("photos", query': '("photos", encoder="runs/photos", query', "64, 64": "32, 32",
        'duplicates("photos"': 'duplicates("photos", "runs/photos"', "run = ": "# ",
    }  # fmt: skip
    names: dict[str, Any] = {}
    shown_in = ("README.md", "docs/start.md", "docs/pretraining.md", "docs/clean.md")
    for document, blocks in zip(shown_in, (1, 1, 1, 2), strict=True):
        code = "\n".join(python_of(document)[:blocks])
        for shown, replaced in here.items():
            code = code.replace(shown, replaced)
        exec(code, names)
        if document == "README.md":
            assert [*names["copies"].columns][:2] == ["group", "path"]
            assert len(names["similar"]) == 10
    assert len(names["features"]) == len(list(Path("photos").rglob("*.jpg")))
    assert names["by_color"].shape[0] == 1
    assert names["of_one_color"].shape == names["in_any_color"].shape
    assert names["config"].encoder.name == "resnet34"


def anchors(document: Path) -> set[str]:
    """What its headings are called in a link."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", document.read_text()):
        if not target.startswith("http"):
            name, _, anchor = target.partition("#")
            file = document.parent / name if name else document
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), target


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 80
    assert len(text.split()) <= 600


def test_every_promise_has_its_test() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text()
    written = "".join(file.read_text() for file in (ROOT / "tests").rglob("*.py"))
    names = re.findall(r"`(test_\w+)`", text)
    assert len(names) >= 15
    assert [name for name in names if f"def {name}(" not in written] == []
    files = re.findall(r"`(tests/[\w/]+\.py)`", text)
    assert all((ROOT / file).is_file() for file in files)
