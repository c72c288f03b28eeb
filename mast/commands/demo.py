"""The demonstration: one encoder, and the invariance chosen when it is used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from mast.commands.adapt import adapt
from mast.commands.common import command, open_search, opened
from mast.commands.pretrain import pretrain
from mast.core.display import say
from mast.core.files import out_folder
from mast.core.kinds import Device

if TYPE_CHECKING:
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

TITLE = "One encoder: you choose what counts as similar"
LEAD = "{count:,} generated images. Choose what counts: the encoder stays the same."


@command
def demo(
    out: str | Path = "runs/demo",
    epochs: int = 8,
    images: int = 8192,
    seed: int = 0,
    device: Device = "auto",
) -> Path:
    """Pretrain on generated images, then open a page to search them on by what you choose.

    MAST-C pretrains a small encoder. Then the demo measures how operators move its features:
    ignoring and matching need no training.

    Args:
        out: Output folder.
        epochs: Passes over the generated images.
        images: Number of generated images.
        seed: Seed of the run and of the sample of images.

    Returns:
        The page; `adapted` next to it is the encoder's folder.
    """
    import numpy as np

    from mast.encoders.load import EncoderOptions
    from mast.invariance.choice import DEPTHS, InvarianceChoice
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
    test, choice = f"toys@test:{images // 4}", InvarianceChoice(space=DEPTHS)
    by, canvases = open_search(EncoderOptions(to), test, choice, device)
    assert by.adapted is not None
    names = [_described(canvases, at) for at in range(len(canvases))]
    first = names[int(np.argmin(canvases.targets["sharpness"]))]
    shown = Searched(
        replace(canvases, identifiers=names), reduced(by.depths(canvases), by.adapted.subspaces),
        urlencode({"photo": first}),
    )  # fmt: skip
    write_gallery(page, TITLE, [], shown, LEAD.format(count=len(canvases)))
    say("on your photos: mast browse FOLDER")
    return opened(page)


def _described(canvases: CanvasSet, at: int) -> str:
    """A name for a generated image."""
    names = {task: names[canvases.targets[task][at]] for task, names in canvases.classes.items()}
    return f"{at} {names['color']} {names['shape']} that looks to the {names['orientation']}"
