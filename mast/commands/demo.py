"""The demonstration: one encoder, and the invariance chosen when it is used."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE

from mast.commands.adapt import adapt
from mast.commands.common import command
from mast.commands.evaluate import evaluate
from mast.commands.pretrain import pretrain
from mast.core.errors import UserError
from mast.core.files import out_folder, quoted
from mast.core.kinds import Device
from mast.core.table import FittedTable, Shown

if TYPE_CHECKING:
    from mast.data import CanvasSet
    from mast.page import GalleryRow, Item
    from mast.search.adapted import Adapted


SIZE = 32
ENCODER = {  # a narrow ResNet-10, which is pretrained in two minutes on two cores
    "name": "timm:resnet18",
    "options": {
        "layers": [1, 1, 1, 1], "channels": [16, 32, 64, 256], "stem_type": "deep",
        "stem_width": 16,
    },
    "stem_stride": 2,
}  # fmt: skip
PROPERTIES = ("color", "orientation", "position", "focus")
LOOKED_AT = 1024  # generated images that adapt looks at
COPIES, SHOWN, NEAREST = 50, 4, 7
EXISTS = "timm:tf_efficientnet_lite0.in1k"  # small, and with weights that may be downloaded
RECOLORED = 85  # of 256 hues

Precision = dict[str, dict[str, float]]  # in percent, by task and space


@dataclass(frozen=True, repr=False)
class DemoResult(Shown):
    """What the demonstration measured."""

    adapted: Path  # the folder of the adapted encoder, which `--ignore` and `--match` take
    page: Path  # queries and their neighbours
    # Of photos: percent of the rotated and recolored copies whose photo is found first, by space.
    copies: Mapping[str, float]
    precision: Precision  # of generated images: percent of the ten nearest with the query's label
    following: str  # the command to go on with

    def tables(self) -> list[FittedTable]:
        """A row a space, a column per task, so that it fits into 80 characters."""
        if not self.precision:
            return []
        title = "Of the ten nearest images, those that share it with the query (%)"
        table = FittedTable(1, title=title, box=SIMPLE, padding=0)
        table.add_column("", min_width=21)
        for name in self.precision:
            table.add_column(name, justify="right", no_wrap=True)
        for space in next(iter(self.precision.values())):
            table.add_row(space, *(f"{row[space]:.1f}" for row in self.precision.values()))
        return [table]

    def shown(self) -> tuple[str | FittedTable, ...]:
        """All of it, and last the command to go on with."""
        found = ", ".join(f"{value:.0f} % {way}" for way, value in self.copies.items())
        return (
            *self.tables(),
            *([f"photos found first by a rotated and recolored copy: {found}"] if found else []),
            f"open it in a browser: {self.page}",
            self.following,
        )


@command
def demo(
    data: str | Path | None = None,
    encoder: str | Path | None = None,
    out: str | Path = "runs/demo",
    epochs: int = 5,
    images: int = 8192,
    size: int | None = None,
    weights: str | Path | None = None,
    download: bool = False,
    seed: int = 0,
    device: Device = "auto",
) -> DemoResult:
    """Show searches that ignore or match what you choose, on generated images or your photos.

    Without photos, VICReg pretrains a small encoder on images whose six factors are known. The
    views rotate the hue by any angle, so the encoder's output loses color. `mast adapt` then finds
    in the same encoder, without training, spaces that ignore color or match color, orientation,
    position or focus. With photos nothing is pretrained: the encoder that you name is adapted on
    them and has to find photos by rotated and recolored copies.

    Args:
        data: Your photos; generated images by default.
        out: Output folder.
        epochs: Passes over the generated images.
        images: Number of generated images.
        seed: Seed of the run and of the sample of images.

    Returns:
        Precisions, planted copies that were found, the page and the adapted encoder's folder.
    """
    if data is None and encoder is not None:
        raise UserError("encoder is for photos of yours: give data, or leave encoder out")
    folder = out_folder(out)
    precision: Precision = {}
    from mast.data import DataConfig, open_canvas

    if data is None:
        run = _pretrained(folder / "vicreg", epochs, images, seed, device)
        looked_at = f"toys@train:{images}"
        found = adapt(looked_at, run, LOOKED_AT, folder / "adapted", device=device, seed=seed)
        data = f"toys@test:{images // 4}"
        following = (
            "on your photos, with an encoder that exists: "
            f"mast demo FOLDER --encoder {EXISTS} --download"
        )
        assert found.path is not None
        precision = _precisions(run, found.path, images, device)
    else:
        found = adapt(
            data, encoder, out=folder / "adapted", size=size, device=device, weights=weights,
            download=download, seed=seed,
        )  # fmt: skip
        assert found.path is not None
        following = (
            f"go on: mast neighbours {quoted(data)} --encoder {quoted(found.path)} "
            "--query PHOTO --match color --out near.html"
        )
    canvases = open_canvas(DataConfig(str(data)), found.adapted.size, model=found.adapted.depths)
    page = folder / "neighbours.html"
    planted = None if precision else folder / "copies"
    copies = _searched(found.path, found.adapted, canvases, planted, page, device)
    return DemoResult(found.path, page, copies, precision, following)


def _pretrained(out: Path, epochs: int, images: int, seed: int, device: Device) -> Path:
    """A run of VICReg whose views destroy the color."""
    from mast.recipes import configure

    return pretrain(
        configure(
            "vicreg5_small",
            out=str(out),
            data=f"toys@train:{images}",
            views="forget_color",
            size=SIZE,
            encoder=ENCODER,
            objective={"projector": {"hidden": 512, "dim": 160}},
            epochs=epochs,
            seed=seed,
            device=device,
            score_every=epochs,
            threads=1,  # a second one gains little on so small an encoder
        )
    ).path


def _precisions(run: Path, adapted: Path, images: int, device: Device) -> Precision:
    """By task: of the encoder's output, and of the spaces of the adapted encoder."""
    from mast.evaluation.named_sets import NamedSets
    from mast.evaluation.result import PRECISION

    precision: Precision = {}
    few = images // 4
    sets = NamedSets(train=f"toys@train:{2 * few}", val=f"toys@val:{few}", test=f"toys@test:{few}")
    spaces = {"ignore color": ("color", "")}
    spaces |= {f"match {name}": ("", name) for name in PROPERTIES}
    (retrieval,) = evaluate(run, sets, "retrieval", device=device)
    named = {"chance": "chance", f"{PRECISION}representation": "the output"}
    for task, scores in retrieval.targets.items():
        precision[task] = {title: scores.values[name] for name, title in named.items()}
    for title, (ignore, match) in spaces.items():
        (retrieval,) = evaluate(
            adapted, sets, "retrieval", device=device, ignore=ignore or (), match=match or ()
        )
        for task, scores in retrieval.targets.items():
            precision[task][title] = scores.values[f"{PRECISION}representation"]
    return precision


def _searched(
    path: Path,
    adapted: Adapted,
    canvases: CanvasSet,
    planted: Path | None,
    page: Path,
    device: Device,
) -> dict[str, float]:
    """Search for some images, and for rotated and recolored copies of them, and write the page.

    Returns:
        The share of the copies whose originals are found first, in percent, by space.
    """
    from mast.augment import OPERATORS
    from mast.core.launch import find_device
    from mast.evaluation.compute import Compute
    from mast.evaluation.neighbours import nearest
    from mast.page import Item, write_gallery
    from mast.runs.spaces import Invariances, compared

    compute = Compute(find_device(device))
    queries = list(range(0, len(canvases), -(-len(canvases) // COPIES)))
    copies = None if planted is None else _planted(canvases, queries, planted, adapted.size)
    colored = "color" in {OPERATORS[name].destroys for name in adapted.operators}
    of_photos: dict[str, list[list[int]]] = {}
    of_copies: dict[str, list[list[int]]] = {}
    for way, choice in {
        "by the output": Invariances(),
        "ignoring color": Invariances(ignore="color"),
        "matching color": Invariances(match="color"),
        "ignoring all": Invariances(ignore="all"),
    }.items():
        if "color" in (choice.ignore, choice.match) and not colored:
            continue
        by = compared(path, choice, compute)
        bank_ND, most = by.features(canvases), min(NEAREST + 1, len(canvases))
        if way != "ignoring all":
            nearest_MK = nearest(bank_ND, bank_ND[queries], most)[1].tolist()
            of_photos[way] = [
                [at for at in nearest_K if at != own][:NEAREST]
                for own, nearest_K in zip(queries, nearest_MK, strict=True)
            ]
        if copies is not None and way in ("by the output", "ignoring all"):
            nearest_MK = nearest(bank_ND, by.extract(copies), most)[1].tolist()
            of_copies[way] = [nearest_K[:NEAREST] for nearest_K in nearest_MK]

    rows = []
    for number in range(0, len(queries), -(-len(queries) // SHOWN)):
        name = canvases.identifiers[queries[number]]
        for way, found_MK in of_photos.items():
            query = Item(canvases, queries[number], "the query", is_query=True)
            rows.append(_row(f"{name}, {way}", query, canvases, found_MK[number]))
        for way, found_MK in of_copies.items():
            assert copies is not None
            query = Item(copies, number, "the query, rotated and recolored", is_query=True)
            rows.append(_row(f"a copy of {name}, {way}", query, canvases, found_MK[number]))
    lead = f"The nearest of {len(canvases):,} images of {canvases.name}, a row a space."
    write_gallery(page, "One encoder, and the invariance chosen", lead, rows)
    return {
        way: 100
        * statistics.fmean(at == first for at, (first, *_) in zip(queries, found_MK, strict=True))
        for way, found_MK in of_copies.items()
    }


def _row(heading: str, query: Item, canvases: CanvasSet, found: Sequence[int]) -> GalleryRow:
    from mast.page import GalleryRow, Item

    return GalleryRow(
        heading, [query, *(Item(canvases, at, f"{n}") for n, at in enumerate(found, 1))]
    )


def _planted(canvases: CanvasSet, queries: Sequence[int], folder: Path, size: int) -> CanvasSet:
    """Copies of some images after a quarter turn, with another hue, kept in a folder."""
    import numpy as np
    from PIL import Image

    from mast.data import open_files
    from mast.page import Item, thumbnail

    folder.mkdir(exist_ok=True)
    files = [folder / f"{at:06d}.png" for at in queries]
    for file, at in zip(files, queries, strict=True):
        hsv_HWC = np.asarray(thumbnail(Item(canvases, at, ""), 2 * size).convert("HSV")).copy()
        hsv_HWC[..., 0] += np.uint8(RECOLORED)
        copy = Image.fromarray(hsv_HWC, "HSV").convert("RGB")
        copy.transpose(Image.Transpose.ROTATE_90).save(file)
    return open_files(files, size, canvases.reading)
