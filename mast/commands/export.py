"""From a run to a folder that loads without this library."""

from dataclasses import replace
from pathlib import Path

from mast.core.errors import UserError, unknown
from mast.core.files import named
from mast.core.run import RunFolder
from mast.exports import FORMATS, Exported, Hub, Place, card, export_folder, refuse_something_else
from mast.measure.store import fingerprint
from mast.models import load_encoder
from mast.protocols import EVALUATORS


def export(
    encoder: str | Path,
    format: str = "pt2",
    out: str | Path | None = None,
    push: str | None = None,
    license: str | None = None,
) -> Exported:
    """Write an encoder as a folder that another library loads in one line, without this one.

    The folder is loaded by that line, and its features are compared with the encoder's, before it
    is kept.

    Args:
        encoder: A run folder or an `encoder.safetensors`.
        format: What loads it: a name in `mast.exports.FORMATS`. Some hold any encoder.
        out: The folder; `exports/<format>` in the run folder, or `<encoder>-<format>` beside a file
            elsewhere, if not given. An earlier export of the same format is replaced.
        push: OWNER/NAME of a repository on the Hugging Face Hub to upload the folder to. It is made
            if it is not there, public unless the owner's settings say otherwise.
        license: That of the weights as the Hub calls it, such as apache-2.0, for the model card.

    Returns:
        The folder, the line that loads it, how far its features are from the encoder's at most, and
        its page on the Hub if it was pushed. Its README.md says how it is loaded, how images are
        prepared and, for a run, how it was trained, what was measured of it and what was not.

    Raises:
        UserError: No such encoder, one that the format cannot hold, something else in the folder's
            place, or a failed upload.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    source = load_encoder(encoder)
    run, target = _places(Path(encoder), format)
    target = target if out is None else named(out)
    refuse_something_else(target, format)
    if license is not None and not license.strip():
        raise UserError("license is empty; leave it out to name none")
    hub = None if push is None else Hub(push)
    form = FORMATS[format].kind(source)
    identity = fingerprint(source, source.describe())
    place = Place(".") if hub is None else Place(hub.repository, on_hub=True)
    name = place.name.rpartition("/")[2] if hub else (run.path if run else target).absolute().name
    text = card(name, form, source, place, run, identity, EVALUATORS, license)
    exported = export_folder(form, format, source, identity, text, target)
    return exported if hub is None else replace(exported, page=hub.push(exported.folder))


def _places(encoder: Path, format: str) -> tuple[RunFolder | None, Path]:
    """The run that an encoder is of, if it is in one, and the folder that it is written to."""
    folder = encoder if encoder.is_dir() else encoder.parent
    run = RunFolder(folder)
    if run.config.is_file():
        return run, run.exports / format
    name = "encoder" if encoder.is_dir() else encoder.stem
    return None, folder / f"{name}-{format}"
