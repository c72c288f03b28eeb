"""Export a run or a classifier to a folder that loads without this library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mast.commands.common import command
from mast.core.errors import UserError, unknown
from mast.core.files import named, short_name
from mast.core.run import RunFolder

if TYPE_CHECKING:
    from mast.exports.folder import Exported
    from mast.exports.original import Original
    from mast.invariance.choice import InvarianceChoice


@command
def export(
    model: str | Path,
    format: str = "pt2",
    out: str | Path | None = None,
    license: str | None = None,
    ignore: str | Sequence[str] = (),
    match: str | Sequence[str] = (),
    space: str | Path | None = None,
) -> Exported:
    """Write an encoder or a classifier as a folder that loads in one line, without this library.

    The folder is deleted unless that line loads it and reproduces the original's outputs. A
    classifier's folder has its classes and its calibration, too.

    Args:
        model: A run folder or an `encoder.safetensors`, for the encoder; or a
            `classifier-*.safetensors` of `mast fit`, for the classifier.
        format: See `mast show formats`. Only onnx and pt2 take every encoder and classifier, and
            ignore and match.
        out: Folder to write or replace. By default `exports/<format>` in the run folder, for a
            classifier `exports/<its file>-<format>`, for a file elsewhere `<file>-<format>` next to
            it, with ignore and match before the format.
        license: License of the weights in the Hub's spelling, such as apache-2.0, for the model
            card.

    Returns:
        The folder, the line that loads it and the largest difference between its outputs and the
        original's. Its README.md explains how to load it and prepare images and, for a run, how
        it was trained and evaluated; for a classifier, its training set and accuracy.
    """
    from mast.exports import FORMATS
    from mast.exports.card import card
    from mast.exports.folder import export_folder, files_to_replace
    from mast.exports.format import ANY
    from mast.exports.graphs import ExportedGraph
    from mast.exports.original import load_original
    from mast.invariance.choice import InvarianceChoice

    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    original = load_original(model)
    invariances = InvarianceChoice(ignore=ignore, match=match, space=space)
    if invariances.names:
        original = _in_space(original, model, invariances)
    if original.reads_more and not issubclass(FORMATS[format].kind, ExportedGraph):
        raise UserError(f"format: {format} cannot store ignore, match or space; {ANY}")
    run, target = _places(Path(model), original, "-".join([*invariances.names, format]))
    target = target if out is None else named(out)
    files_to_replace(target, format)
    form = FORMATS[format].kind(original)
    identity = original.fingerprint()
    title = (run.path if run else target).absolute().name
    if original.classifier is not None:
        title = Path(model).stem
    trained = run is not None and run.config.is_file() and original.pretrained_in(run)
    pretrained = run if trained else None
    text = card(title, form, original, pretrained, identity, license)
    return export_folder(form, format, original, identity, text, target)


def _in_space(original: Original, model: str | Path, invariances: InvarianceChoice) -> Original:
    """The encoder followed by the linear map of the chosen invariances."""
    from mast.core.compute import Compute
    from mast.encoders.frozen import InSpace
    from mast.encoders.load import EncoderOptions
    from mast.invariance.choice import load_search_encoder

    if original.classifier is not None:
        raise UserError("ignore, match and space: expected none with a classifier")
    seen = load_search_encoder(EncoderOptions(model), invariances, Compute("cpu"))
    assert isinstance(seen.encoder.module, InSpace)
    return replace(original, space=seen.encoder.module, chosen=seen.chosen)


def _places(model: Path, original: Original, format: str) -> tuple[RunFolder | None, Path]:
    """The run or adapted folder that contains a model, if any, and the default output folder."""
    from mast.encoders.load import ADAPTED

    folder = model if model.is_dir() else model.parent
    name = short_name(f"{'encoder' if model.is_dir() else model.stem}-{format}")
    run = RunFolder(folder)
    if not run.config.is_file() and not (folder / ADAPTED).is_file():
        return None, folder / name
    return run, run.exports / (short_name(format) if original.classifier is None else name)
