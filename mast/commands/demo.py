"""The demonstration: one encoder, and the invariance chosen when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from rich.box import SIMPLE

from mast.commands.adapt import adapt
from mast.commands.common import command, opened
from mast.commands.pretrain import pretrain
from mast.core.files import out_folder
from mast.core.kinds import Device
from mast.core.table import Shown, TextTable

if TYPE_CHECKING:
    from torch import Tensor

    from mast.data import CanvasSet
    from mast.invariance.adapted import Adapted

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
NEAREST = 10

TITLE = "One encoder: you choose what counts as similar"
LEAD = "{count:,} generated images. Choose what counts: the encoder stays the same."


class Way(NamedTuple):
    """What is ignored or matched in a row of the table."""

    name: str
    ignore: str = ""
    match: str = ""


WAYS = (
    Way("output"), Way("ignore color", ignore="color"), Way("match color", match="color"),
    Way("match orientation", match="orientation"), Way("match position", match="position"),
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class DemoResult(Shown):
    """What the demonstration measured."""

    adapted: Path  # the folder of the adapted encoder, which `--ignore` and `--match` take
    page: Path  # on which the images are searched
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

    from mast.page import Searched, write_gallery
    from mast.recipes import configure
    from mast.search.reduced import reduced

    folder = out_folder(out)
    to, page, data = folder / "adapted", folder / "photos.html", f"toys@train:{images}"
    config = configure(
        RECIPE, out=str(folder / "run"), data=data, views=VIEWS, size=SIZE, encoder=ENCODER,
        objective=OBJECTIVE, epochs=epochs, batch_size=BATCH, seed=seed, device=device,
        score_every=epochs,
    )  # fmt: skip
    run = pretrain(config).path
    adapt(data, run, LOOKED_AT, to, operators=MEASURED, device=device, seed=seed)
    adapted, canvases, features_NF = _opened(to, f"toys@test:{images // 4}", device)
    names = [_described(canvases, at) for at in range(len(canvases))]
    first = names[int(np.argmin(canvases.targets["sharpness"]))]
    shown = Searched(
        replace(canvases, identifiers=names), reduced(features_NF, adapted.subspaces),
        urlencode({"photo": first}),
    )  # fmt: skip
    write_gallery(page, TITLE, [], shown, LEAD.format(count=len(canvases)))
    return DemoResult(to, opened(page), _shares(canvases, adapted, features_NF))


def _opened(folder: Path, data: str, device: Device) -> tuple[Adapted, CanvasSet, Tensor]:
    """The adapted encoder, images and their features of all stages."""
    from mast.core.compute import Compute
    from mast.core.launch import find_device
    from mast.data import DataConfig, open_canvas
    from mast.encoders.load import EncoderOptions
    from mast.invariance.choice import DEPTHS, InvarianceChoice, load_search_encoder

    by = load_search_encoder(
        EncoderOptions(folder), InvarianceChoice(space=DEPTHS), Compute(find_device(device))
    )
    assert by.adapted is not None
    canvases = open_canvas(DataConfig(data), by.adapted.size, model=by.adapted.depths)
    return by.adapted, canvases, by.depths(canvases)


def _shares(
    canvases: CanvasSet, adapted: Adapted, features_NF: Tensor
) -> dict[str, dict[str, float]]:
    """Percent of nearest images with the query's label, by way and task, and by chance."""
    import torch

    from mast.search.nearest import nearest

    labels = {task: torch.from_numpy(canvases.targets[task]) for task in TASKS}
    shares = {"chance": {task: 100 / len(canvases.classes[task]) for task in TASKS}}
    for way in WAYS:
        x_ND = features_NF[:, -adapted.depths.widths[-1] :]
        if way.ignore or way.match:
            x_ND = adapted.space(way.ignore, way.match)(features_NF)
        near_NK = nearest(x_ND, x_ND, min(NEAREST + 1, len(x_ND)))[1]
        others_NK = near_NK != torch.arange(len(x_ND))[:, None]
        others_NK &= others_NK.cumsum(dim=1) <= NEAREST
        same = {task: of_N[near_NK] == of_N[:, None] for task, of_N in labels.items()}
        shares[way.name] = {
            task: 100 * float(same_NK[others_NK].float().mean()) for task, same_NK in same.items()
        }
    return shares


def _described(canvases: CanvasSet, at: int) -> str:
    """A name for a generated image."""
    names = {task: names[canvases.targets[task][at]] for task, names in canvases.classes.items()}
    return f"{at} {names['color']} {names['shape']} that looks to the {names['orientation']}"
