"""Is what the analyses say true? Advice beside a known truth, uncertainty beside known damage.

    python experiments/insight.py advice runs/factors_mast5 runs/factors_mast15
    python experiments/insight.py uncertain runs/cifar_mast5 --data SETS/cifar10/test
    python experiments/insight.py findings runs/cifar_mast5

`advice` asks each run which operators the tasks of `factors` need, and holds the answer against
what is known from how the images are drawn (`DESTROYED_BY`): results/insight/advice-<run>.json.
`uncertain` makes blurred, noised and cropped copies of 2,000 images and counts how often
`mast uncertain` ranks a copy above its original: results/insight/uncertain-<run>.json.
`findings` keeps what every analysis and finished study of a run says, in words and as a table:
results/insight/findings-<run>.json.
The commands that made the runs are in docs/insight.md.
"""

import argparse
import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter

import mast
from mast.analyses import ANALYSES
from mast.augment import center_views
from mast.config import read as read_config
from mast.core.checkpoint import write_json
from mast.core.run import RunFolder, provenance
from mast.data import open_canvas
from mast.data.factors import CLASSES, DESTROYED_BY
from mast.measure.bootstrap import percentiles, resampled_means
from mast.measure.result import Result

RESULTS = Path(__file__).parent / "results" / "insight"
IMAGES = 2000
DAMAGE = {  # kind and strength of a copy
    "blurred, 3 % of the side": lambda image, random: blurred(image, 0.03),
    "blurred, 8 % of the side": lambda image, random: blurred(image, 0.08),
    "noised, deviation 0.05": lambda image, random: noised(image, 0.05, random),
    "noised, deviation 0.15": lambda image, random: noised(image, 0.15, random),
    "cropped, half of the area": lambda image, random: cropped(image, 0.5, random),
    "cropped, a fifth of the area": lambda image, random: cropped(image, 0.2, random),
}


def blurred(image: Image.Image, share: float) -> Image.Image:
    """Blurred by a Gaussian whose deviation is a share of the side."""
    return image.filter(ImageFilter.GaussianBlur(share * image.width))


def noised(image: Image.Image, deviation: float, random: np.random.Generator) -> Image.Image:
    """With Gaussian noise added to every value in [0, 1]."""
    noise = 255 * deviation * random.standard_normal((image.height, image.width, 3))
    return Image.fromarray((np.asarray(image) + noise).round().clip(0, 255).astype(np.uint8))


def cropped(image: Image.Image, area: float, random: np.random.Generator) -> Image.Image:
    """A square part of the area, anywhere, at the same size again."""
    side = image.width * area**0.5
    left, top = random.uniform(0, image.width - side, 2)
    box = (left, top, left + side, top + side)
    return image.resize(image.size, Image.Resampling.BICUBIC, box=box)


def advice(run: Path) -> dict[str, Any]:
    """For each task of factors the ranking of the run's operators, beside the truth."""
    rows = mast.advise(run, "factors").rows
    (file,) = RunFolder(run).evaluations.glob("retained-factors-test.json")
    measured = Result.read(file).targets
    accuracy = {task: of_task.values["top1"] for task, of_task in measured.items()}
    tasks: dict[str, Any] = {}
    for task in CLASSES:
        mine = [row for row in rows if row[0] == task]
        names = [str(row[1]).replace(" ", "_") for row in mine]
        tasks[task] = {
            "accuracy": accuracy[task],
            "destroyed_by": [name for name in DESTROYED_BY[task] if name in names],
            "ranking": [
                {
                    "operator": name,
                    "change": row[2],
                    "interval": [row[3], row[4]],
                    "verdict": row[5],
                    "kept_by_subspace": None if np.isnan(row[6]) else row[6],
                }
                for name, row in reversed(list(zip(names, mine, strict=True)))
            ],
        }
        for key in ("change", "kept_by_subspace"):
            tasks[task][f"found_by_{key}"] = found(tasks[task], key)
    return {"run": described(run), "tasks": tasks, "provenance": provenance()}


def found(task: dict[str, Any], key: str) -> float | None:
    """Percent of (destroying, other) pairs of operators that a number puts in the right order."""
    values = {entry["operator"]: entry[key] for entry in task["ranking"]}
    bad = [values[name] for name in task["destroyed_by"]]
    good = [value for name, value in values.items() if name not in task["destroyed_by"]]
    if None in (*bad, *good) or not bad or not good:
        return None
    pairs = [(one < two) + 0.5 * (one == two) for one in bad for two in good]
    return 100 * float(np.mean(pairs))


def described(run: Path) -> dict[str, Any]:
    """What a run was, for the record."""
    config = read_config(RunFolder(run).config)
    return {
        "name": run.name,
        "data": Path(config.data.spec).name,
        "method": config.method,
        "views": config.views,
        "size": config.size,
        "epochs": config.epochs,
        "staged": config.schedule.staged,
        "mode": config.objective.mode if config.method == "mast" else None,
    }


def uncertain(run: Path, data: str) -> dict[str, Any]:
    """How often a damaged copy is ranked above its original, by kind and strength of damage."""
    size = read_config(RunFolder(run).config).size
    canvases = open_canvas(data, size)
    chosen = np.sort(np.random.default_rng(0).permutation(len(canvases))[:IMAGES])
    images_BCHW = center_views(*canvases.batch(chosen), size)
    pixels_BHWC = (images_BCHW * 255 + 0.5).clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    originals = [Image.fromarray(pixels_HWC) for pixels_HWC in pixels_BHWC]
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        write(originals, Path(folder, "original"))
        for kind, damage in DAMAGE.items():
            write([damage(image, random) for image in originals], Path(folder, kind))
        table = mast.uncertain(run, folder, out=Path(folder) / "ranked.csv")
        with table.open() as file:
            trace = {row["path"]: float(row["trace"]) for row in csv.DictReader(file)}
    names = [f"{at:05d}.png" for at in range(len(originals))]
    before = np.array([trace[f"original/{name}"] for name in names])
    above = {}
    for kind in DAMAGE:
        after = np.array([trace[f"{kind}/{name}"] for name in names])
        credit_N = torch.from_numpy((after > before) + 0.5 * (after == before))
        low, high = percentiles(resampled_means(credit_N, seed=0))
        value = 100 * float(credit_N.mean())
        above[kind] = {"above": value, "interval": [100 * low, 100 * high]}
    return {
        "run": described(run),
        "set": "/".join(Path(data).parts[-2:]),
        "images": len(originals),
        "percent": above,
        "provenance": provenance(),
    }


def findings(run: Path) -> dict[str, Any]:
    """What every analysis that was made of a run says, in words and as a table."""
    made = {}
    for name, kind in ANALYSES.items():
        file = RunFolder(run).analysis / f"{name}.npz"
        if file.is_file():
            with np.load(file) as kept:
                arrays = dict(kept)
            grid = kind().details(arrays).grid
            made[name] = {
                "title": kind.title,
                "caption": kind().caption(arrays),
                "columns": grid.columns if grid else [],
                "rows": [[plain(cell) for cell in row] for row in grid.rows] if grid else [],
            }
    return {"run": described(run), "analyses": made, "provenance": provenance()}


def plain(cell: str | float) -> str | float | None:
    """A cell of a table as JSON has it, which knows no NaN."""
    return None if isinstance(cell, float) and not np.isfinite(cell) else cell


def write(images: list[Image.Image], folder: Path) -> None:
    """Images as PNG files in a folder."""
    folder.mkdir()
    for at, image in enumerate(images):
        image.save(folder / f"{at:05d}.png")


def main() -> None:
    """Answer one question for some runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("question", choices=("advice", "uncertain", "findings"))
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data", default="factors@test", help="images to damage")
    arguments = parser.parse_args()
    for run in arguments.runs:
        answer = {
            "advice": advice,
            "uncertain": lambda run: uncertain(run, arguments.data),
            "findings": findings,
        }[arguments.question](run)
        RESULTS.mkdir(parents=True, exist_ok=True)
        write_json(RESULTS / f"{arguments.question}-{run.name}.json", answer)


if __name__ == "__main__":
    main()
