"""A folder that another library loads: written, loaded back and compared, kept, pushed."""

import os
import re
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mast.core.checkpoint import write_json, write_text
from mast.core.errors import UserError, one_line
from mast.core.files import as_unicode, read_json
from mast.core.reading import Reading
from mast.core.table import ShownText
from mast.data import Factors
from mast.data.decode import to_test_view
from mast.data.formats import Bands
from mast.encoders.extract import open_images
from mast.exports.format import Format, Place, alike
from mast.exports.original import OUTPUTS, Kind, Original

CARD = "README.md"
OURS = "mast.json"  # which format, original and files a folder holds
SHAPES = ((1.2, 2.2), (2.6, 1.05), (1.0, 1.0), (0.7, 1.9), (1.5, 1.5), (1.33, 2.0))  # in sides
AGREED = 0.02  # in probability, or as a share of the largest feature


@dataclass(frozen=True, repr=False)
class Exported(ShownText):
    """An encoder or a classifier that loads without this library.

    Attributes:
        folder: Where it is.
        line: Python that loads it as `model`.
        difference: How far its outputs are from the original's, at most.
        prepared: The same, for images of odd shapes that its own example prepared; None if that
            needs a library that is not installed.
        kind: Which of the two it is.
        page: Its page on the Hugging Face Hub, if it was pushed.
    """

    folder: Path
    line: str
    difference: float
    prepared: float | None
    kind: Kind = "encoder"
    page: str | None = None

    @property
    def text(self) -> str:
        """The same in a few lines, of which the last is Python."""
        output = f"{OUTPUTS[self.kind]} within {self.difference:.1g} of the {self.kind}'s"
        if self.prepared is not None:
            output += f", {self.prepared:.1g} by the example in its {CARD}, which prepares images"
        pages = [] if self.page is None else [self.page]
        return "\n".join(map(one_line, [f"{self.folder}: {output}", *pages, self.line]))


def refuse_something_else(out: Path, name: str) -> None:
    """Refuse to write over what is not an export of the same format, or holds more than that."""
    places = list(out.iterdir()) if out.is_dir() else []
    files = {place.name for place in places}
    if not files and (out.is_dir() or not os.path.lexists(out)):
        return
    known = read_json(out / OURS) if OURS in files else None
    written = known if isinstance(known, dict) else {}
    if written.get("format") != name:
        what = f"an export as {written['format']}" if "format" in written else "no export"
        raise UserError(f"{out} is there and is {what}; choose another out")
    listed = written.get("files")
    own = {OURS, *map(str, listed if isinstance(listed, list) else ())}
    own -= {place.name for place in places if not place.is_file()}  # whatever is listed
    if others := sorted(files - own):
        raise UserError(f"{out} holds {others[0]}, which no export wrote; choose another out")


def export_folder(
    form: Format, name: str, original: Original, identity: str, card: str, out: Path
) -> Exported:
    """Write it, load it by the line that users copy, and keep it if what it computes is right.

    `identity` is the original's fingerprint, `card` the text of `README.md`. A folder of the same
    format is replaced; after an error nothing is left of it.
    """
    out = Path(os.path.realpath(out))
    if out == Path.cwd():  # it would be replaced under the shell
        raise UserError(f"{out} is the current folder; choose another out, such as a new folder")
    if as_unicode(str(out)) != str(out):
        raise UserError(
            f"{out} is no name for an export, as it is not UTF-8 in this locale: name another out, "
            "or set LC_ALL=C.UTF-8"
        )
    with _made_beside(out) as folder:
        form.write(folder)
        difference = _difference(form, name, original, folder)
        prepared = _prepared(form, name, original, folder)
        write_text(folder / CARD, card)
        files = sorted(file.name for file in folder.iterdir())
        facts = {"format": name, original.kind: identity, "difference": difference, "files": files}
        write_json(folder / OURS, facts | {"prepared": prepared})
    return Exported(out, form.line(Place(str(out))), difference, prepared, original.kind)


@contextmanager
def _made_beside(out: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of another only when it is whole."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name[:40]}-", dir=out.parent) as place:
            folder = Path(place) / "new"
            folder.mkdir()
            if out.exists():
                folder.chmod(stat.S_IMODE(out.stat().st_mode))
            yield folder
            if out.exists():
                out.rename(Path(place) / "old")  # which is removed with the place
            folder.rename(out)
    except OSError as error:
        raise UserError(
            f"cannot write {out}: {error.strerror or error}. Free some space or choose another out."
        ) from error


def _difference(form: Format, name: str, original: Original, folder: Path) -> float:
    """How far outputs are from the original's at most, for batches of one image and of three."""
    output, images_BCHW = original.output, original.noise(3)
    names: dict[str, Any] = {}
    largest = 0.0
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # libraries warn of what they deprecate
        exec(form.tried(Place(str(folder))), names)  # what is printed is what is tried
        for images in (images_BCHW, images_BCHW[:1]):
            ours_BC, theirs_BC = original.module(images), form.outputs(names["model"], images)
            if theirs_BC.shape != ours_BC.shape:
                raise UserError(
                    f"{original.name!r} as {name} gives {output} of shape "
                    f"{tuple(theirs_BC.shape)}, expected {tuple(ours_BC.shape)}; nothing was kept"
                )
            difference = (ours_BC - theirs_BC).abs().max().item()
            if not alike(original.compared(ours_BC), original.compared(theirs_BC), form.tolerance):
                raise UserError(
                    f"{output} of {original.name!r} as {name} differ from the {original.kind}'s by "
                    f"{difference:.2g}; nothing was kept, choose another format"
                )
            largest = max(largest, difference)
    return largest


def _prepared(form: Format, name: str, original: Original, folder: Path) -> float | None:
    """How far outputs are from the original's for images that each prepares in its own way.

    They are drawn scenes, or noise in the range of the values of files. None where a module is
    missing that the format's example needs.
    """
    if not all(map(find_spec, form.modules)):
        return None
    sides = [[round(share * original.size) for share in shape] for shape in SHAPES]
    images: list[Any] = [_values(original.reading, height, width) for height, width in sides]
    if original.of_photos:
        scenes = Factors("test", len(sides), max(map(max, sides)))
        images = [
            scenes.open(index).crop((0, 0, width, height))
            for index, (height, width) in enumerate(sides)
        ]
        views_BCHW = open_images(images, original.size)
    else:
        views_BCHW = torch.stack([_view(original, values_HWC) for values_HWC in images])
    names: dict[str, Any] = {"images": images, "torch": torch}
    place = Place(str(folder))
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        exec(f"{form.line(place)}\n{form.example(place)}", names)
        ours_BC = original.module(views_BCHW)
    theirs_BC = torch.as_tensor(names[original.output])
    difference = (ours_BC - theirs_BC).abs().max().item()
    if difference > AGREED * (1.0 if original.classifier else ours_BC.abs().max().item()):
        raise UserError(
            f"{original.output} of {original.name!r} as {name} differ by {difference:.2g} from the "
            f"{original.kind}'s for images of odd shapes; nothing was kept, choose another format"
        )
    return difference


def _values(reading: Reading, height: int, width: int) -> np.ndarray:
    """Of a file, (H, W, channels): some beyond the range that is read, some that are none."""
    generator = np.random.default_rng((height, width))
    low, high = np.array(reading.low), np.array(reading.high)
    shares_HWC = generator.uniform(-0.1, 1.1, (height, width, reading.layout.channels))
    values_HWC = low + shares_HWC * (high - low)
    if reading.no_data is not None:
        values_HWC[-(height // 4) :, -(width // 4) :] = reading.no_data
    if not reading.layout.deep:
        return values_HWC.clip(0, 255).astype(np.uint8)
    values_HWC[: height // 4, : width // 4] = np.nan
    return values_HWC


def _view(original: Original, values_HWC: np.ndarray) -> torch.Tensor:
    """What an encoder sees of a file, (channels, V, V)."""
    reading = original.reading
    planes_PVV = to_test_view(Bands(values_HWC), original.size, reading)
    return reading.layout.joined(torch.from_numpy(planes_PVV)[None] / 255)[0]


def check_repository(repository: str) -> None:
    """Refuse, before anything is written, what is no OWNER/NAME, or to push without a token."""
    from huggingface_hub import get_token

    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII):
        raise UserError(
            f"expected a repository of the Hugging Face Hub as OWNER/NAME, got {repository!r}"
        )
    if get_token() is None:
        raise UserError(
            "pushing needs a token of the Hugging Face Hub that may write: run "
            "`hf auth login`, or set HF_TOKEN"
        )


def push_folder(folder: Path, repository: str, kind: Kind) -> str:
    """Upload an export to the Hugging Face Hub; files of the same names there are replaced.

    The repository is made where there is none, public unless the owner's settings say otherwise.

    Returns:
        Its page.
    """
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        page = api.create_repo(repository, exist_ok=True)
        api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message=f"Upload the {kind}"
        )
    except Exception as error:  # of the network, of the Hub, of what the token may do
        reason = (as_unicode(str(error)).strip().splitlines() or [""])[0]
        raise UserError(
            f"cannot push to {repository} ({type(error).__name__}: {reason}); {folder} is whole, "
            "and the same command tries again"
        ) from error
    return str(page)
