"""What the house promises as a whole."""

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


def test_at_most_thirteen_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 13
    extras = {"test", "docs", "hf", "onnx", "detection", "wandb", "parquet"}
    assert extras <= project["optional-dependencies"].keys()


def test_the_loop_is_one_function_of_bounded_length() -> None:
    text = (ROOT / "mast" / "commands" / "pretrain.py").read_text()
    body = text[text.index("\ndef pretrain(") : text.index("\ndef _loggers(")]
    assert body.count("\n") <= 300
