"""The demonstration: one encoder, and the invariance chosen when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.box import SIMPLE

from mast.commands.adapt import adapt
from mast.commands.common import command
from mast.commands.pretrain import pretrain
from mast.core.files import out_folder
from mast.core.kinds import Device
from mast.core.table import Shown, TextTable

if TYPE_CHECKING:
    import numpy as np

    from mast.data import CanvasSet

RECIPE, VIEWS, BATCH, SIZE = "mast_c5_small", "forget_some_color", 128, 32
ENCODER = {  # a narrow ResNet-10, which is pretrained in a minute on two cores
    "name": "timm:resnet18",
    "options": {
        "layers": [1, 1, 1, 1], "channels": [16, 32, 64, 256], "stem_type": "deep",
        "stem_width": 16,
    },
    "stem_stride": 2,
}  # fmt: skip
OBJECTIVE = {"prediction": {"weight": 1.5}}  # with 1, color left the output in one run of three
MEASURED = ("color_jitter", "rotate", "horizontal_flip", "translate_x", "translate_y")
LOOKED_AT = 512  # generated images that adapt measures
TASKS = ("color", "orientation", "position")  # of generated images, in the table
SHOWN, NEAREST, IN_ROW = 4, 10, 7

TITLE = "One encoder: you choose what counts as similar"
LEAD = (
    "Each row shows which of {count:,} images are nearest to the outlined one. The encoder is "
    "always the same; only what is ignored or matched changes."
)


class Way(NamedTuple):
    """A choice to ignore and match, and the heading of its rows; no rows without a heading."""

    name: str
    heading: str = ""
    ignore: str = ""
    match: str = ""


WAYS = (
    Way("output", "Nothing chosen: a bit of everything"),
    Way("ignore color", "Ignore color: same orientation and place, any color", ignore="color"),
    Way("match color", "Match color: same color, anything else", match="color"),
    Way("match orientation", "Match orientation: looks the same way, in any color",
        match="orientation"),
    Way("match position", match="position"),
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class DemoResult(Shown):
    """What the demonstration measured."""

    adapted: Path  # the folder of the adapted encoder, which `--ignore` and `--match` take
    page: Path  # queries and their neighbours
    # Percent of the ten nearest images that have the query's label, by way and task.
    shares: Mapping[str, Mapping[str, float]]

    def shown(self) -> tuple[str | TextTable, ...]:
        """The table, the page, and the next command to try."""
        title = "Ten nearest images that share a property with the query (%)"
        table = TextTable(title=title, box=SIMPLE, padding=0)
        table.add_column("", min_width=21)
        for name in TASKS:
            table.add_column(name, justify="right", no_wrap=True)
        for way, row in self.shares.items():
            table.add_row(way, *(f"{value:.0f}" for value in row.values()))
        following = "on your photos: mast neighbours FOLDER --query PHOTO --ignore color"
        return table, f"open it in a browser: {self.page}", following


@command
def demo(
    out: str | Path = "runs/demo",
    epochs: int = 8,
    images: int = 8192,
    seed: int = 0,
    device: Device = "auto",
) -> DemoResult:
    """Pretrain on generated images, then search them by what you ignore or match.

    MAST-C pretrains a small encoder. Then the demo measures how operators move its features:
    ignoring and matching need no training.

    Args:
        out: Output folder.
        epochs: Passes over the generated images.
        images: Number of generated images.
        seed: Seed of the run and of the sample of images.

    Returns:
        The shares, the page and the adapted encoder's folder.
    """
    import numpy as np

    from mast.page import GalleryRow, Item, write_gallery
    from mast.recipes import configure

    folder = out_folder(out)
    to, page, data = folder / "adapted", folder / "neighbours.html", f"toys@train:{images}"
    config = configure(
        RECIPE, out=str(folder / "run"), data=data, views=VIEWS, size=SIZE, encoder=ENCODER,
        objective=OBJECTIVE, epochs=epochs, batch_size=BATCH, seed=seed, device=device,
        score_every=epochs,
    )  # fmt: skip
    run = pretrain(config).path
    adapt(data, run, LOOKED_AT, to, operators=MEASURED, device=device, seed=seed)
    canvases, near = _searched(to, f"toys@test:{images // 4}", device)
    rows = list[GalleryRow]()
    for at in np.flatnonzero(canvases.targets["sharpness"] == 0)[:SHOWN].tolist():
        part = _described(canvases, at)
        for way in filter(lambda way: way.heading, near):
            found = [Item(canvases, of, "") for of in near[way][at, :IN_ROW].tolist()]
            rows.append(GalleryRow(way.heading, [Item(canvases, at, "", True), *found], part))
            part = ""
    write_gallery(page, TITLE, LEAD.format(count=len(canvases)), rows)
    return DemoResult(to, page, _shares(canvases, near))


def _searched(folder: Path, data: str, device: Device) -> tuple[CanvasSet, dict[Way, np.ndarray]]:
    """The images, and for each way the positions (N, K) of each image's nearest images."""
    import numpy as np

    from mast.core.compute import Compute
    from mast.core.launch import find_device
    from mast.data import DataConfig, open_canvas
    from mast.encoders.load import EncoderOptions
    from mast.invariance.choice import DEPTHS, InvarianceChoice, load_search_encoder
    from mast.search.nearest import nearest

    by = load_search_encoder(
        EncoderOptions(folder), InvarianceChoice(space=DEPTHS), Compute(find_device(device))
    )
    adapted = by.adapted
    assert adapted is not None
    canvases = open_canvas(DataConfig(data), adapted.size, model=adapted.depths)
    features_NF, last = by.depths(canvases), adapted.depths.widths[-1]
    near = {}
    for way in WAYS:
        x_ND = features_NF[:, -last:]
        if way.ignore or way.match:
            x_ND = adapted.space(way.ignore, way.match)(features_NF)
        found_NK = nearest(x_ND, x_ND, min(NEAREST + 1, len(x_ND)))[1].tolist()
        others = [[of for of in found_K if of != at] for at, found_K in enumerate(found_NK)]
        near[way] = np.array([of_one[:NEAREST] for of_one in others])
    return canvases, near


def _shares(canvases: CanvasSet, near: Mapping[Way, np.ndarray]) -> dict[str, dict[str, float]]:
    """Percent of nearest images with the query's label, by way and task, and by chance."""
    import numpy as np

    labels = {task: np.asarray(canvases.targets[task]) for task in TASKS}
    shares = {"chance": {task: 100 / len(canvases.classes[task]) for task in TASKS}}
    for way, near_NK in near.items():
        shares[way.name] = {task: 100 * float((of_N[near_NK] == of_N[:, None]).mean())
                            for task, of_N in labels.items()}  # fmt: skip
    return shares


def _described(canvases: CanvasSet, at: int) -> str:
    """A caption for a generated image."""
    names = {task: names[canvases.targets[task][at]] for task, names in canvases.classes.items()}
    return "{color} {shape} that looks to the {orientation}".format_map(names).capitalize()
