"""Do distances from the training images, and predicted covariances, find damaged copies?"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeAlias, final

import numpy as np
import torch
from PIL import Image, ImageFilter

from experiments.small_sets import RUNS, SmallRun, called, run_facts
from mast.analyses import Grid
from mast.augment import center_views
from mast.core.compute import Compute
from mast.core.kinds import Device
from mast.core.launch import find_device
from mast.data import open_photos
from mast.encoders.extract import extract
from mast.evaluation.intervals import mean_interval
from mast.runs.load import load_method
from mast.search.duplicates import first_copies
from mast.search.nearest import directions
from mast.search.outliers import distances
from paper.experiment import Experiment, Measured, Workplace, link_cifar
from paper.outputs import MethodOutput
from paper.studies.engine import StudyRun

DATA = "cifar10/test"
Damage: TypeAlias = Callable[[Image.Image, np.random.Generator], Image.Image]


def _blurred(share: float) -> Damage:
    """By a Gaussian whose deviation is a share of the side."""
    return lambda image, _: image.filter(ImageFilter.GaussianBlur(share * image.width))


def _noised(deviation: float) -> Damage:
    """Gaussian noise added to every value in [0, 1]."""

    def damage(image: Image.Image, random: np.random.Generator) -> Image.Image:
        noise = 255 * deviation * random.standard_normal((image.height, image.width, 3))
        return Image.fromarray((np.asarray(image) + noise).round().clip(0, 255).astype(np.uint8))

    return damage


def _cropped(area: float) -> Damage:
    """A square part of the area, anywhere, at the same size again."""

    def damage(image: Image.Image, random: np.random.Generator) -> Image.Image:
        side = image.width * area**0.5
        left, top = random.uniform(0, image.width - side, 2)
        box = (left, top, left + side, top + side)
        return image.resize(image.size, Image.Resampling.BICUBIC, box=box)

    return damage


DAMAGE: dict[str, Damage] = {  # kind and strength of a copy
    "blurred, 3 % of the side": _blurred(0.03),
    "blurred, 8 % of the side": _blurred(0.08),
    "noised, deviation 0.05": _noised(0.05),
    "noised, deviation 0.15": _noised(0.15),
    "cropped, half of the area": _cropped(0.5),
    "cropped, a fifth of the area": _cropped(0.2),
}


@final
@dataclass(frozen=True)
class UncertaintyCheck(Experiment):
    """How often a damaged copy is ranked above its original, by kind and strength of damage.

    It needs `cifar10/{train,test}`.
    """

    results: ClassVar[str] = "insight"

    runs: Mapping[str, tuple[SmallRun, str]] = field(
        default_factory=lambda: {
            name: (RUNS[name], by)
            for name, by in (
                ("cifar_exempt", "neighbours"), ("cifar_vicreg5", "neighbours"),
                ("cifar_mast15", "prediction"), ("cifar_mast5", "prediction"),
                ("cifar_mast5_paper", "prediction"),
            )
        }
    )  # fmt: skip
    trained_on: int = 10_000
    images: int = 2000

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        return [
            StudyRun(
                f"uncertain-{name}",
                {"recipe": run.recipe, "by": by},
                run.configure(name, workplace),
            )
            for name, (run, by) in self.runs.items()
        ]

    def prepare(self, workplace: Workplace) -> None:
        link_cifar(workplace, self.trained_on)
        for run, _ in self.runs.values():
            workplace.open(DATA, run.changes["size"])

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        """Percent of copies above their originals, ties one half."""
        assert run.config is not None
        size = run.config.size
        canvases = workplace.open(DATA, size)
        chosen_B = np.sort(np.random.default_rng(0).permutation(len(canvases))[: self.images])
        images_BCHW = center_views(canvases.batch(chosen_B), size)
        pixels_BHWC = (images_BCHW * 255 + 0.5).clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
        originals = [Image.fromarray(pixels_HWC) for pixels_HWC in pixels_BHWC]
        random = np.random.default_rng(0)
        with tempfile.TemporaryDirectory() as folder:
            _write(originals, Path(folder, "original"))
            for kind, damage in DAMAGE.items():
                _write([damage(image, random) for image in originals], Path(folder, kind))
            score = _scores(run, folder, workplace.device)
        names = [f"{at:05d}.png" for at in range(len(originals))]
        before_B = np.array([score[f"original/{name}"] for name in names])
        percent = {}
        for kind in DAMAGE:
            after_B = np.array([score[f"{kind}/{name}"] for name in names])
            credit_B = torch.from_numpy((after_B > before_B) + 0.5 * (after_B == before_B))
            low, high, method = mean_interval(credit_B, seed=0)
            above = 100 * float(credit_B.mean())
            percent[kind] = {
                "above": above, "interval": [100 * low, 100 * high], "interval_by": method,
            }  # fmt: skip
        return {
            "run": run_facts(run.folder.path.name, run.config),
            "by": run.changes["by"],
            "set": DATA,
            "images": len(originals),
            "percent": percent,
        }

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """One row per kind of damage, one column per run."""
        results = list(measured.values())
        columns = (
            f"{result.get('by', 'prediction')}: {result['run']['views']}, {called(result['run'])}"
            for result in results
        )
        rows = tuple(
            (
                kind,
                *(
                    "{above:.0f} [{interval[0]:.0f}, {interval[1]:.0f}]".format(
                        **result["percent"][kind]
                    )
                    for result in results
                ),
            )
            for kind in results[0]["percent"]
        )
        return Grid(("copies", *columns), rows)


def _scores(run: StudyRun, folder: str, device: Device) -> dict[str, float]:
    """How odd a run finds each image of a folder.

    By the distance of representation and embedding from the training images, or by the trace of the
    covariance that it predicts.
    """
    assert run.config is not None
    method, size = load_method(run.folder.path), run.config.size
    canvases, compute = open_photos(folder, size, method.encoder), Compute(find_device(device))
    if run.changes["by"] == "prediction":
        output = MethodOutput(method, "uncertainty").eval()
        value_N = extract(output, canvases, size, compute)[:, 0]
    else:
        known, output = (
            open_photos(run.config.data, size, method.encoder),
            MethodOutput(method, "both"),
        )
        unit_ND, bank_ND = (
            torch.cat(
                [directions(part_ND) for part_ND in both_ND.tensor_split([method.encoder.dim], 1)],
                1,
            )
            for both_ND in (
                extract(output.eval(), each, size, compute) for each in (canvases, known)
            )
        )
        value_N = distances(bank_ND, first_copies(known), unit_ND)
    return dict(zip(canvases.identifiers, value_N.tolist(), strict=True))


def _write(images: Sequence[Image.Image], folder: Path) -> None:
    """Images as PNG files in a folder."""
    folder.mkdir()
    for at, image in enumerate(images):
        image.save(folder / f"{at:05d}.png")
