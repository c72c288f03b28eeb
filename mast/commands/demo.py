"""The demonstration: one encoder, and the invariance chosen when it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.box import SIMPLE

from mast.commands.adapt import adapt
from mast.commands.common import command
from mast.commands.pretrain import pretrain
from mast.core.errors import UserError
from mast.core.files import out_folder, quoted
from mast.core.kinds import Device
from mast.core.table import FittedTable, Shown

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
COPIES, SHOWN, NEAREST, IN_ROW = 50, 4, 10, 7
RECOLORED = 85  # of 256 hues

TITLE = "One encoder: you choose what counts as similar"
LEAD = (
    "Each row shows which of {count:,} images are nearest to the outlined one. The encoder is "
    "always the same; only what is ignored or matched changes."
)


class Way(NamedTuple):
    """What is ignored and matched, and the heading of its rows; without one it has no rows."""

    name: str
    heading: str = ""
    ignore: str = ""
    match: str = ""


OF_GENERATED = (
    Way("output", "Nothing chosen: a bit of everything"),
    Way("ignore color", "Ignore color: same orientation and place, any color", ignore="color"),
    Way("match color", "Match color: same color, anything else", match="color"),
    Way("match orientation", "Match orientation: looks the same way, in any color",
        match="orientation"),
    Way("match position", match="position"),
)  # fmt: skip
OF_PHOTOS = (
    Way("output", "Nothing chosen"),
    Way("ignore color", "Ignore color: similar, in any color", ignore="color"),
    Way("match color", "Match color: the same colors, whatever it shows", match="color"),
)
OF_COPIES = (
    Way("output", "The same photo, rotated and recolored: nothing chosen"),
    Way("ignore all", "The same photo, rotated and recolored: all of that ignored", ignore="all"),
)


@dataclass(frozen=True, repr=False)
class DemoResult(Shown):
    """What the demonstration measured."""

    adapted: Path  # the folder of the adapted encoder, which `--ignore` and `--match` take
    page: Path  # queries and their neighbours
    # Percent by way and task: of generated images those of the ten nearest that have the query's
    # label; of photos the rotated and recolored copies whose photo is the nearest.
    shares: Mapping[str, Mapping[str, float]]
    following: str  # the command to go on with

    def shown(self) -> tuple[str | FittedTable, ...]:
        """The table, and last the command to go on with."""
        columns = [*next(iter(self.shares.values()))]
        what = "Of the ten nearest images, those that share it with the query (%)"
        title = what if columns == [*TASKS] else "Of rotated and recolored copies (%)"
        table = FittedTable(1, title=title, box=SIMPLE, padding=0)
        table.add_column("", min_width=21)
        for name in columns:
            table.add_column(name, justify="right", no_wrap=True)
        for way, row in self.shares.items():
            table.add_row(way, *(f"{value:.0f}" for value in row.values()))
        return table, f"open it in a browser: {self.page}", self.following


@command
def demo(
    data: str | Path | None = None,
    encoder: str | Path | None = None,
    out: str | Path = "runs/demo",
    epochs: int = 8,
    images: int = 8192,
    size: int | None = None,
    weights: str | Path | None = None,
    download: bool = False,
    seed: int = 0,
    device: Device = "auto",
) -> DemoResult:
    """Show searches that ignore or match what you choose, on generated images or your photos.

    Without photos, MAST-C pretrains a small encoder on images whose properties are known. How some
    operators move its features is measured then; nothing is trained to ignore or to match. With
    photos nothing is pretrained: the encoder is measured on them, and has to find photos by rotated
    and recolored copies.

    Args:
        data: Your photos; generated images by default.
        encoder: With photos: a run folder, a checkpoint of another project, or a timm or
            torchvision name; a tag, as in `timm:resnet18.a1_in1k`, names weights too.
        out: Output folder.
        epochs: Passes over the generated images.
        images: Number of generated images.
        size: With photos: side of the views in pixels; that of pretraining if not given.
        weights: With photos: a checkpoint with weights for the name; `order:FILE` matches weights
            of other names by their order and shapes.
        download: With photos: allow downloading the tag's weights.
        seed: Seed of the run and of the sample of images.

    Returns:
        What was shared, the page and the adapted encoder's folder.
    """
    if data is None and encoder is not None:
        raise UserError("encoder is for photos of yours: give data, or leave encoder out")
    import numpy as np

    from mast.page import GalleryRow, Item, write_gallery

    folder = out_folder(out)
    to, page = folder / "adapted", folder / "neighbours.html"
    if data is None:
        run = _pretrained(folder / "run", epochs, images, seed, device)
        adapt(data=f"toys@train:{images}", encoder=run, images=LOOKED_AT, out=to,
              operators=MEASURED, device=device, seed=seed)  # fmt: skip
        search = _Search(to, f"toys@test:{images // 4}", device)
        own = range(len(search.canvases))
        searched = [(search.canvases, search.near(OF_GENERATED, search.canvases, own))]
        shares = _shares(search.canvases, searched[0][1])
        shown = np.flatnonzero(search.canvases.targets["sharpness"] == 0)[:SHOWN].tolist()
        following = "on your photos: mast demo FOLDER"
    else:
        adapt(data=data, encoder=encoder, out=to, size=size, device=device,
              weights=weights, download=download, seed=seed)  # fmt: skip
        search = _Search(to, str(data), device)
        own = range(0, len(search.canvases), -(-len(search.canvases) // COPIES))
        photos = search.canvases.part(own)
        copies = _planted(photos, folder / "copies", search.adapted.size)
        searched = [(photos, search.near(OF_PHOTOS, photos, own)),
                    (copies, search.near(OF_COPIES, copies))]  # fmt: skip
        shares = {way.name: {"photo found first": 100 * float((near_QK[:, 0] == own).mean())}
                  for way, near_QK in searched[1][1].items()}  # fmt: skip
        shown = [*range(0, len(own), -(-len(own) // SHOWN))]
        following = (
            f"go on: mast neighbours {quoted(data)} --encoder {quoted(to)} --query PHOTO "
            "--match color --out near.html"
        )
    rows = list[GalleryRow]()
    for at in shown:
        part = _described(searched[0][0], at)
        for queries, near in searched:
            for way in filter(lambda way: way.heading, near):
                found = [Item(search.canvases, of, "") for of in near[way][at, :IN_ROW].tolist()]
                rows.append(GalleryRow(way.heading, [Item(queries, at, "", True), *found], part))
                part = ""
    write_gallery(page, TITLE, LEAD.format(count=len(search.canvases)), rows)
    return DemoResult(to, page, shares, following)


def _pretrained(out: Path, epochs: int, images: int, seed: int, device: Device) -> Path:
    """A run of MAST-C on generated images."""
    from mast.recipes import configure

    return pretrain(
        configure(
            RECIPE, out=str(out), data=f"toys@train:{images}", views=VIEWS, size=SIZE,
            encoder=ENCODER, objective=OBJECTIVE, epochs=epochs, batch_size=BATCH, seed=seed,
            device=device, score_every=epochs,
        )
    ).path  # fmt: skip


class _Search:
    """Images that are searched by an adapted encoder.

    Args:
        folder: Of the encoder.
        data: The images.
        device: Where they are encoded.
    """

    def __init__(self, folder: Path, data: str, device: Device) -> None:
        from mast.core.compute import Compute
        from mast.core.launch import find_device
        from mast.data import DataConfig, open_canvas
        from mast.encoders.load import EncoderOptions
        from mast.invariance.choice import DEPTHS, InvarianceChoice, load_search_encoder

        self.by = load_search_encoder(
            EncoderOptions(folder), InvarianceChoice(space=DEPTHS), Compute(find_device(device))
        )
        assert self.by.adapted is not None
        self.adapted, config = self.by.adapted, DataConfig(data)
        self.canvases = open_canvas(config, self.adapted.size, model=self.adapted.depths)
        self.features_NF = self.by.depths(self.canvases)

    def near(
        self, ways: Sequence[Way], queries: CanvasSet, own: Sequence[int] = ()
    ) -> dict[Way, np.ndarray]:
        """By way the positions (Q, K) that are nearest to each query, without those of its own."""
        import numpy as np

        from mast.augment import OPERATORS
        from mast.search.nearest import nearest

        kinds = {OPERATORS[name].destroys for name in self.adapted.operators} | {"", "all"}
        last, most = self.adapted.depths.widths[-1], min(NEAREST + 1, len(self.features_NF))
        both = self.features_NF, self.features_NF[own] if own else self.by.depths(queries, False)
        found = {}
        for way in ways:
            if not {way.ignore, way.match} <= kinds:
                continue  # gray photos have no color to choose
            chosen = way.ignore or way.match
            space = self.adapted.space(way.ignore, way.match)
            bank_ND, query_QD = (space(x_F) if chosen else x_F[:, -last:] for x_F in both)
            near_QK = nearest(bank_ND, query_QD, most)[1].tolist()
            found[way] = np.array([
                [at for at in near_K if at != its][: most - 1]
                for near_K, its in zip(near_QK, own or [-1] * len(near_QK), strict=True)
            ])  # fmt: skip
        return found


def _shares(canvases: CanvasSet, near: Mapping[Way, np.ndarray]) -> dict[str, dict[str, float]]:
    """Percent of the nearest that have the query's label, by way and task; and by chance."""
    import numpy as np

    labels = {task: np.asarray(canvases.targets[task]) for task in TASKS}
    shares = {"chance": {task: 100 / len(canvases.classes[task]) for task in TASKS}}
    for way, near_NK in near.items():
        shares[way.name] = {task: 100 * float((of_N[near_NK] == of_N[:, None]).mean())
                            for task, of_N in labels.items()}  # fmt: skip
    return shares


def _described(canvases: CanvasSet, at: int) -> str:
    """What a generated image shows, or the name of a photo."""
    if not {*TASKS} <= canvases.targets.keys():
        return canvases.identifiers[at]
    names = {task: names[canvases.targets[task][at]] for task, names in canvases.classes.items()}
    return "{color} {shape} that looks to the {orientation}".format_map(names).capitalize()


def _planted(photos: CanvasSet, folder: Path, size: int) -> CanvasSet:
    """Copies of photos after a quarter turn, with another hue, kept in a folder."""
    import numpy as np
    from PIL import Image

    from mast.data import open_files
    from mast.page import Item, thumbnail

    folder.mkdir(exist_ok=True)
    files = [folder / f"{at:06d}.png" for at in range(len(photos))]
    for at, file in enumerate(files):
        hsv_HWC = np.asarray(thumbnail(Item(photos, at, ""), 2 * size).convert("HSV")).copy()
        hsv_HWC[..., 0] += np.uint8(RECOLORED)
        copy = Image.fromarray(hsv_HWC, "HSV").convert("RGB")
        copy.transpose(Image.Transpose.ROTATE_90).save(file)
    return open_files(files, size, photos.reading)
