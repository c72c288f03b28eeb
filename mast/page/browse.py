"""A page of all photos of a set, on which what counts is chosen: `mast browse`."""

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from PIL import Image

from mast.core.errors import visible
from mast.data import UNLABELLED, CanvasSet
from mast.invariance.reduced import Reduced, Rounded
from mast.invariance.subspaces import MATCHED, RIDGE, RIDGE_TO_MATCH
from mast.page.html import FOLDER, POLICY, hashed, rendered

SCRIPTS = ("state", "tiles", "copies", "views", "main")
SHEET = 10  # photos along a side of a sheet
QUALITY = 70
SIDES = {1000: 160, 5000: 112}  # pixels of a photo, by how many there are at most


class Found(NamedTuple):
    """What is shown of a set beside its photos."""

    copies: Sequence[Sequence[dict[str, Any]]]  # groups of {at, level, changes}
    outliers: Sequence[tuple[int, float]]  # the farthest first
    suspects: Sequence[tuple[int, str, float]]  # what is suggested instead, quality of the label


def write_browser(
    out: Path, title: str, lead: str, canvases: CanvasSet, space: Reduced, found: Found
) -> None:
    """Write the page; it loads nothing, and needs no server."""
    side = next(
        (side for most, side in SIDES.items() if len(canvases) <= most), min(SIDES.values())
    )
    sheets = [_sheet(canvases, start, side) for start in range(0, len(canvases), SHEET**2)]
    folder = FOLDER / "browse"
    style = (folder / "browse.css").read_text("utf-8")
    style += "".join(f".sheet-{at} {{ background-image: url({each}); }}\n"
                     for at, each in enumerate(sheets))  # fmt: skip
    script = "\n".join((folder / f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    policy = (
        f"{POLICY}script-src '{hashed(script)}' blob:; worker-src blob:; base-uri 'none'; "
        "form-action 'none'"
    )
    data = json.dumps(_data(canvases, space, found)).replace("<", "\\u003c")
    rendered(
        out, "browse/browse.html.jinja", title=title, lead=lead, policy=policy,
        style=Markup(style), data=Markup(data), script=Markup(script),
        worker=Markup((folder / "space.js").read_text("utf-8")),
    )  # fmt: skip


def _data(canvases: CanvasSet, space: Reduced, found: Found) -> dict[str, Any]:
    labels = None
    for task, label_N in canvases.targets.items():
        classes = canvases.classes[task]
        labels = ["" if label == UNLABELLED else visible(classes[label])
                  for label in label_N.tolist()]  # fmt: skip
        break
    return {
        "images": len(canvases),
        "names": [visible(name) for name in canvases.identifiers],
        "labels": labels,
        "axes": len(space.features.scale_R),
        "dims": space.numbers,
        "matched": MATCHED,
        "ridge": RIDGE,
        "ridgeToMatch": RIDGE_TO_MATCH,
        **_packed("features", "scales", space.features),
        "rest": _text(space.rest_N.float().numpy()),
        "properties": {
            name: {**_packed("factors", "factorScales", each.factors), "trace": each.trace}
            for name, each in space.properties.items()
        },
        **found._asdict(),
    }


def _packed(values: str, scales: str, rows: Rounded) -> dict[str, str]:
    return {values: _text(rows.values_MR.numpy()), scales: _text(rows.scale_R.numpy())}


def _text(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _sheet(canvases: CanvasSet, start: int, side: int) -> str:
    """A hundred photos as one image, as a data URI: each whole, on a transparent square."""
    sheet = Image.new("RGBA", (SHEET * side, SHEET * side))
    positions = range(start, min(start + SHEET**2, len(canvases)))
    batch = canvases.batch([*positions])
    for place in range(len(positions)):
        canvas_HWC, aspect = batch.image(place).numpy(), float(batch.aspect_B[place])
        inner = side - 2  # of a neighbor nothing shows where a browser rounds
        size = tuple(max(1, round(inner * min(1.0, each))) for each in (aspect, 1 / aspect))
        photo = Image.fromarray(canvas_HWC).resize(size, Image.Resampling.LANCZOS)
        row, column = divmod(place, SHEET)
        corner = (column * side + (side - size[0]) // 2, row * side + (side - size[1]) // 2)
        sheet.paste(photo, corner)
    content = io.BytesIO()
    sheet.save(content, "WEBP", quality=QUALITY)
    return f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode()}"
