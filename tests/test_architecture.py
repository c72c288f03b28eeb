"""What the house promises as a whole."""

import ast
import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_import_is_light() -> None:
    code = (
        "import sys, torch, time; started = time.perf_counter(); import mast; mast.evaluate; "
        "seconds = time.perf_counter() - started; "
        "heavy = {'timm', 'torchvision', 'lightning_fabric', 'sklearn', 'matplotlib', 'datasets', "
        "'tensorboard', 'pyarrow', 'numba', 'torchmetrics', 'faster_coco_eval'} "
        "& set(sys.modules); "
        "assert not heavy, heavy; assert seconds < 3.0, seconds"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# What is imported by another name than it is installed by, and what a dependency brings with it.
DISTRIBUTION = {"PIL": "pillow", "sklearn": "scikit-learn", "albumentations": "albumentationsx"}
DISTRIBUTION |= {"scipy": "scikit-learn", "jinja2": "torch", "markupsafe": "torch"}
DISTRIBUTION |= {"yaml": "jsonargparse", "huggingface_hub": "datasets"}
TOOLS = {"pytest-xdist", "ruff", "mypy", "import-linter"}  # run, not imported


def imported(*folders: str) -> set[str]:
    """The distributions whose modules the files of some folders import."""
    modules: set[str] = set()
    for file in itertools.chain.from_iterable((ROOT / folder).rglob("*.py") for folder in folders):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add((node.module or "").partition(".")[0])
    return {DISTRIBUTION.get(module, module.replace("_", "-")) for module in modules}


def test_every_dependency_is_imported_and_every_import_is_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 13

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[\[<>=]", requirement)[0] for requirement in requirements}

    extras = {extra: names(rows) for extra, rows in project["optional-dependencies"].items()}
    needed = names(project["dependencies"])
    product = needed.union(
        *(rows for extra, rows in extras.items() if extra not in ("test", "bench", "browser"))
    )
    own = {module.replace("_", "-") for module in sys.stdlib_module_names} | {"mast"}
    assert imported("mast") - own == product - {"tensorboard"}  # which Fabric's logger imports
    assert extras["test"] - TOOLS <= imported("mast", "tests")
    assert extras["browser"] <= imported("tests/browser")
    assert extras["bench"] <= imported("benchmarks")


def test_the_loop_is_one_function_of_bounded_length() -> None:
    text = (ROOT / "mast" / "commands" / "pretrain.py").read_text()
    body = text[text.index("\ndef pretrain(") : text.index("\ndef _views(")]
    assert body.count("\n") <= 300
