"""Write a folder for another library, and keep it only if its example code works."""

import math
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast.core.checkpoint import write_json, write_text
from mast.core.errors import UserError, one_line
from mast.core.files import out_folder, read_json, refuse_others
from mast.core.table import ShownText
from mast.data.generated import Factors
from mast.encoders.extract import open_images
from mast.exports.format import Format, resized
from mast.exports.original import OUTPUTS, Kind, Original

CARD = "README.md"
OURS = "mast.json"  # records the format, original and files of a folder
SHAPES = ((1.2, 2.2), (2.6, 1.05), (1.0, 1.0), (0.7, 1.9), (1.5, 1.5), (1.33, 2.0))  # in sides
ROUNDED = (1e-2, 1e-3)  # tolerance: `mast` rounds values of files other than photos to 8 or 16 bits


@dataclass(frozen=True, repr=False)
class Exported(ShownText):
    """An encoder or a classifier that loads without this library.

    Attributes:
        folder: Its folder.
        line: Python that loads it as `model`.
        difference: Largest difference of its outputs from the original's.
        kind: "encoder" or "classifier".
    """

    folder: Path
    line: str
    difference: float
    kind: Kind = "encoder"

    @property
    def text(self) -> str:
        """Summary in a few lines; the last is Python."""
        output = f"{OUTPUTS[self.kind]} within {self.difference:.1g} of the {self.kind}'s"
        return "\n".join(map(one_line, [f"{self.folder}: {output}", self.line]))


def files_to_replace(out: Path, name: str) -> list[Path]:
    """Files of an earlier export of the same format; raises if the folder has others."""
    known = read_json(out / OURS) if (out / OURS).is_file() else None
    known = known if isinstance(known, dict) else {}
    if known and known.get("format") != name:
        raise UserError(f"out: {out} has another format, {known.get('format')}; choose another")
    ours = (OURS, *known.get("files", ())) if known else ()
    refuse_others(out_folder(out), ours, "mast export")
    return [file for file in out.glob("*") if file.name in ours]


def export_folder(
    form: Format, name: str, original: Original, identity: str, card: str, out: Path
) -> Exported:
    """Write an export, run the example code of its README.md, and keep it if outputs agree.

    `identity` is the original's fingerprint, `card` the text of `README.md`. Files of an earlier
    export are replaced, or restored after an error.
    """
    out = out.resolve()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name[:40]}-", dir=out.parent) as place:
            folder = Path(place)
            form.write(folder)
            difference = _difference(form, name, original, folder)
            write_text(folder / CARD, card)
            files = sorted(file.name for file in folder.iterdir())
            facts = {"format": name, original.kind: identity, "difference": difference}
            write_json(folder / OURS, facts | {"files": files})
            for earlier in files_to_replace(out, name):
                earlier.unlink()
            out.mkdir(exist_ok=True)
            for file in (OURS, *files):
                (folder / file).rename(out / file)
    except OSError as error:
        raise UserError(
            f"out: cannot write {out}: {error.strerror or error}; free space or choose another."
        ) from error
    return Exported(out, form.line(str(out)), difference, original.kind)


def _difference(form: Format, name: str, original: Original, folder: Path) -> float:
    """Largest difference of outputs from the original's, by the example code of README.md.

    Tested with a batch and a single image.
    """
    images, views_BCHW = _images(original)
    tolerance = form.tolerance if original.of_photos else ROUNDED
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # deprecation warnings of libraries
        ours_BC = original.module(views_BCHW)
        outputs = []
        for count in (len(images), 1):
            names: dict[str, Any] = {"images": images[:count]}
            exec(f"{form.line(str(folder))}\n{form.example(str(folder))}", names)
            outputs.append(torch.as_tensor(names[original.output]))
    theirs_BC, wanted_BC = torch.cat(outputs), torch.cat([ours_BC, ours_BC[:1]])
    same = theirs_BC.shape == wanted_BC.shape
    difference = (wanted_BC - theirs_BC).abs().max().item() if same else math.inf
    ours_BC, theirs_BC = original.compared(wanted_BC), original.compared(theirs_BC)
    own, of_largest = tolerance  # more than rounding
    least = of_largest * ours_BC.abs().max().item()
    if not (same and torch.allclose(theirs_BC, ours_BC, rtol=own, atol=least)):
        raise UserError(
            f"{original.output} of {original.name!r} as {name} differ from the {original.kind}'s "
            f"by {difference:.2g}; the export was deleted, choose another format"
        )
    return difference


def _images(original: Original) -> tuple[list[Any], Tensor]:
    """Images for the example code, and the same images as the original's input.

    Photos are drawn scenes of odd shapes. Other files hold noise, including values out of range and
    non-finite ones, of a size that needs no resampling.
    """
    reading = original.reading
    if original.of_photos:
        sides = [[round(share * original.size) for share in shape] for shape in SHAPES]
        scenes = Factors("test", len(sides), max(map(max, sides)))
        images = [
            scenes.open(index).crop((0, 0, width, height))
            for index, (height, width) in enumerate(sides)
        ]
        return images, open_images(images, original.size)
    short = resized(original.size)
    low, high = np.array(reading.low), np.array(reading.high)
    arrays = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(3):
            shape = (short, short + 8 * seed, reading.layout.channels)
            shares_HWC = np.random.default_rng(seed).uniform(-0.1, 1.1, shape)
            values_HWC = low + shares_HWC * (high - low)
            if reading.no_data is not None:
                values_HWC[-(short // 4) :, -(short // 4) :] = reading.no_data
            if reading.layout.deep:
                values_HWC[: short // 4, : short // 4] = np.nan
            else:
                values_HWC = values_HWC.clip(0, 255).astype(np.uint8)
            np.save(f"{folder}/{seed}.npy", values_HWC)
            arrays.append(values_HWC)
        files = [f"{folder}/{seed}.npy" for seed in range(3)]
        return arrays, open_images(files, original.size, reading)
