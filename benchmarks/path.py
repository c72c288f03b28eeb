"""The quickstart's path from photos to predictions: its own commands, timed, in a new environment.

The training photos of Flowers-17 without labels, ten labels per class, and the test photos as new
ones. Beside it, for several draws of the ten: a linear head on the last map, on the untrained
encoder, and the whole network fine-tuned or trained from scratch. 90 minutes on two cores; what is
done is not done again.
"""

import argparse
import csv
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from measure import RESULTS

import mast
from mast.commands.plan import plan
from mast.commands.predict import predict
from mast.config import configuration_of
from mast.core.checkpoint import write_json
from mast.core.launch import cores
from mast.core.run import RunFolder, provenance
from mast.evaluation.intervals import wilson
from mast.runs.start import load_untrained

REPOSITORY = Path(__file__).parent.parent
SECTION = "## Pretrain on your photos"
LABELS = 10  # a class
# From scratch and fine-tuned alike: the rate is chosen by held-out images.
TUNED = {"changes": {"epochs": 50, "batch_size": 32}, "encoder_lrs": (0.01, 0.1)}
# How a classifier comes about: the encoder, and how it is fitted.
WAYS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "pretrained, all depths": ("run", {"space": "depths"}),
    "pretrained, last map": ("run", {}),
    "untrained, all depths": ("untrained", {"space": "depths"}),
    "untrained, last map": ("untrained", {}),
    "pretrained, fine-tuned": ("run", {"kind": "finetune", "settings": TUNED}),
    "from scratch": ("untrained", {"kind": "finetune", "settings": TUNED}),
}


def copy_photos(flowers: Path, work: Path, draws: int) -> dict[str, str]:
    """`photos`, `labelled` and its further draws, and `new_photos`; the classes of the last."""
    for photo in sorted((flowers / "train").rglob("*.jpg")):
        _copy(photo, work / "photos" / photo.name)
    for draw in range(draws):
        for folder in sorted((flowers / "train").iterdir()):
            photos = sorted(folder.iterdir())
            random.Random(f"{draw}/{folder.name}").shuffle(photos)
            for photo in photos[:LABELS]:
                _copy(photo, work / _labelled(draw) / folder.name / photo.name)
    truth = {}
    for photo in sorted((flowers / "test").rglob("*.jpg")):
        _copy(photo, work / "new_photos" / photo.name)
        truth[photo.name] = photo.parent.name
    return truth


def commands(epochs: int | None) -> list[str]:
    """How the README installs it, and how the quickstart classifies photos.

    Args:
        epochs: Of the pretraining, where they are not those of the recipe.
    """
    text = (REPOSITORY / "README.md").read_text()
    quickstart = (REPOSITORY / "docs" / "start.md").read_text()
    blocks = [*re.findall(r"```bash\n(.*?)```", text, re.DOTALL)]
    install = next(block for block in blocks if "pip install ." in block)
    path = re.search(rf"{SECTION}\n\n```bash\n(.*?)```", quickstart, re.DOTALL)
    assert path is not None, SECTION
    lines = [install.partition("#")[0].strip(), *path[1].strip().splitlines()]
    if epochs is None:
        return lines
    return [f"{line} --epochs {epochs}" if "mast pretrain" in line else line for line in lines]


def carry_out(line: str, work: Path, environment: Path) -> dict[str, Any]:
    """Run a command of the README as it stands there, and time it."""
    folder = REPOSITORY if line.startswith("pip") else work
    if "mast pretrain" in line:  # one that was stopped would go on, and seem shorter
        shutil.rmtree(work / "runs", ignore_errors=True)
    path = os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])
    begun = time.perf_counter()
    subprocess.run(
        shlex.split(line), cwd=folder, env=os.environ | {"PATH": path, "PYTHONPATH": ""}, check=True
    )
    return {"command": line, "minutes": (time.perf_counter() - begun) / 60}


def accuracy(table: Path, truth: Mapping[str, str]) -> dict[str, Any]:
    """How many classes of a table of `mast predict` are true."""
    with table.open(newline="") as file:
        told = {Path(row["path"]).name: row["class"] for row in csv.DictReader(file)}
    assert told.keys() == truth.keys(), table
    right = sum(told[name] == truth[name] for name in truth)
    low, high = wilson(right, len(truth))
    return {"top1": 100 * right / len(truth), "low": 100 * low, "high": 100 * high}


def classified(work: Path, way: str, draw: int, truth: Mapping[str, str]) -> dict[str, Any]:
    """Fit a classifier of one draw of labels, and tell the new photos."""
    of, options = WAYS[way]
    run = work / "runs" / "photos"
    name = "fits/" + f"{way}-{draw}".replace(", ", "-").replace(" ", "-")
    encoder: Any = run if of == "run" else load_untrained(run).module
    if of == "untrained" and "space" in options:
        encoder = mast.adapt(work / "photos", encoder, seed=draw).adapted
    begun = time.perf_counter()
    fitted = mast.fit(
        work / _labelled(draw), encoder, size=configuration_of(RunFolder(run)).size, seed=draw,
        out=work / f"{name}.safetensors", **options,
    )  # fmt: skip
    minutes = (time.perf_counter() - begun) / 60
    table = predict(work / "new_photos", fitted.classifier, work / f"{name}.csv").file
    chosen = fitted.classifier.about["validation"]
    return {**accuracy(table, truth), "minutes": minutes, "validation": chosen}


def planned(photos: Path, epochs: int | None) -> float:
    """Minutes that `mast plan` says the run will take; without epochs, with the recipe's."""
    cost = plan(photos).costs[0]
    config = replace(cost.config, epochs=epochs or cost.config.epochs)
    return replace(cost, config=config).seconds / 60


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("flowers", type=Path, help="Flowers-17: train and test, a folder per class")
    parser.add_argument("--work", type=Path, required=True, help="a folder for all that it makes")
    parser.add_argument("--draws", type=int, default=3, help="of the ten labels per class")
    parser.add_argument("--epochs", type=int, help="of the pretraining, if not the recipe's")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, help="to compare")
    options = parser.parse_args()
    work = options.work.resolve()
    truth = copy_photos(options.flowers, work, options.draws)
    kept = work / "path.json"
    done: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}

    if done.setdefault("epochs", options.epochs) != options.epochs:
        parser.error(f"{work} is of a run of {done['epochs'] or 'all'} epochs: name another --work")

    def once(name: str, measure: Callable[[], Any]) -> Any:
        if name not in done:
            done[name] = measure()
            write_json(kept, done)
            print(name, done[name], flush=True)
        return done[name]

    planned_minutes = once("planned", lambda: planned(work / "photos", options.epochs))
    environment = work / "environment"
    if not (environment / "bin" / "mast").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
    carried_out = [
        once(line, partial(carry_out, line, work, environment)) for line in commands(options.epochs)
    ]
    (table,) = work.glob("*.csv")
    for way, draw in product(options.ways, range(options.draws)):
        once(f"{way}: {draw}", partial(classified, work, way, draw, truth))
    config = configuration_of(RunFolder(work / "runs" / "photos"))
    write_json(
        RESULTS / "path.json",
        {
            "setting": {
                "photos": len(list((work / "photos").iterdir())), "new_photos": len(truth),
                "labels": LABELS, "classes": len(set(truth.values())), "epochs": config.epochs,
                "size": config.size, "cores": cores(), "tuned": TUNED,
            },
            "planned_minutes": planned_minutes,
            "commands": carried_out,
            "told": once("told", partial(accuracy, table, truth)),
            "ways": {
                way: [each for name, each in done.items() if name.startswith(f"{way}: ")]
                for way in WAYS
            },
            "provenance": provenance(),
        },
    )  # fmt: skip


def _labelled(draw: int) -> str:
    return "labelled" if draw == 0 else f"labelled-{draw}"


def _copy(photo: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(photo, to)


if __name__ == "__main__":
    main()
