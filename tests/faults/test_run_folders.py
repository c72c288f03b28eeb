"""Whatever happens to a file of a run folder: a result without it, or one line that names it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pages import OPERATORS, look_into, make_run, measure

import mast
from mast.core.errors import UserError
from mast.core.run import RunFolder, provenance

# What nothing depends on: the page is written without it.
OPTIONAL = ("provenance.json", "metrics.jsonl", "analysis/missing.json", "analysis/curves.npz",
            "analysis/curves.svg")  # fmt: skip
NEEDED = ("config.yaml", "evaluations/knn-photos-test.json",
          "evaluations/each/knn-photos-test.safetensors")  # fmt: skip

Damage = Callable[[bytes], bytes]
DAMAGES: dict[str, Damage] = {
    "emptied": lambda content: b"",
    # behind a name: a file that ends with a line may be a whole one with fewer fields
    "cut short": lambda content: content[: content.rfind(b":", 0, len(content) // 2)],
    "zeroed": lambda content: bytes(len(content)),
    "noise": lambda content: bytes((i * 7919) % 256 for i in range(len(content))),
    "another kind": lambda content: b'[{"step": "x"}]\n',
    "nested": lambda content: b"[" * 99_999,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with everything that a page shows."""
    run = make_run(tmp_path_factory.mktemp("whole") / "run", "mast_c15_small", operators=OPERATORS)
    measure(run, "knn", [60.0, 70.0])
    look_into(run, ["curves", "masks"])
    facts = {"data": {"images": 48, "spec": "photos"}, "processes": 1, "device": "cpu"}
    run.provenance.write_text(json.dumps(provenance() | facts | {"precision": "float32"}))
    assert all((run.path / name).is_file() for name in (*OPTIONAL, *NEEDED))
    return run


@pytest.fixture
def copies(whole: RunFolder, tmp_path: Path) -> Callable[[], RunFolder]:
    """A function that gives a fresh copy of the run."""

    def copy() -> RunFolder:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return RunFolder(shutil.copytree(whole.path, tmp_path / "copy"))

    return copy


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_nothing_depends_on_may_be_damaged(
    copies: Callable[[], RunFolder], damage: str
) -> None:
    run = copies()
    for name in OPTIONAL:
        file = run.path / name
        file.write_bytes(DAMAGES[damage](file.read_bytes()))
    page = mast.report(run.path).read_text()
    assert "<title>" in page
    assert "60.0" in page  # what was measured is there


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_needed_is_named(copies: Callable[[], RunFolder], name: str) -> None:
    file = copies().path / name
    whole = file.read_bytes()
    for damage in DAMAGES.values():
        file.write_bytes(damage(whole))
        with pytest.raises(UserError, match=file.name):
            mast.report(file.parents[name.count("/")])
