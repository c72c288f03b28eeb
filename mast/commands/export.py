"""From a run to the state dict that timm or torchvision loads."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from mast.core.errors import UserError, unknown
from mast.core.tensors import read_tensors, write_tensors
from mast.models import Encoder, load_encoder

FORMATS = ("timm", "torchvision")


def export(
    encoder: str | Path,
    format: Literal["timm", "torchvision"] = "timm",
    out: str | Path | None = None,
) -> Path:
    """Write an encoder as a state dict of another library, in safetensors.

    The file is loaded back into that library's model and its representations are compared
    with ours before it is kept.

    Args:
        encoder: A run folder or an `encoder.safetensors`.
        format: Whose names and shapes the state dict has. The classifier is left out.
        out: The file; `<encoder>-<format>.safetensors` beside the encoder if not given.

    Returns:
        The file. Its header says the architecture, the stem, and the mean and standard
        deviation with which inputs in [0, 1] must be normalised.

    Raises:
        UserError: No such encoder, or one that the library does not have.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    source = load_encoder(encoder)
    twin = _in_library(source, format)
    place = Path(encoder)
    folder = place if place.is_dir() else place.parent
    target = folder / f"encoder-{format}.safetensors" if out is None else Path(out)
    header = {
        "architecture": twin.config.name,
        "options": json.dumps(twin.config.options),
        "stem": json.dumps(
            {"stem": twin.config.stem, "stride": twin.config.stem_stride, "size": twin.size}
        ),
        **{
            key: json.dumps(values) for key, values in source.config.normalization._asdict().items()
        },
    }
    write_tensors(target, twin.model.state_dict(), header=header)
    _compare(source, twin, target)
    return target


def _in_library(source: Encoder, library: str) -> Encoder:
    """The same architecture built by another library, with our weights."""
    name = source.config.name.rpartition(":")[2]
    if library == source.library:
        options = source.config.options
    else:
        # Initialisation options do not matter once weights are loaded.
        options = {k: v for k, v in source.config.options.items() if k != "zero_init_residual"}
    try:
        config = replace(source.config, name=f"{library}:{name}", options=options)
        twin = Encoder(config, source.size)
        twin.model.load_state_dict(source.model.state_dict())
    except (UserError, RuntimeError) as error:
        raise UserError(
            f"{library} has no model with the weights of {source.config.name!r}; "
            f"export it as {source.library}"
        ) from error
    return twin.eval()


@torch.inference_mode()
def _compare(source: Encoder, twin: Encoder, file: Path) -> None:
    """Load the written file into the twin and compare representations."""
    twin.model.load_state_dict(read_tensors(file)[0])
    generator = torch.Generator().manual_seed(0)
    images_BCHW = torch.rand(4, 3, source.size, source.size, generator=generator)
    ours_BC, twin_BC = source(images_BCHW), twin(images_BCHW)
    if not torch.allclose(ours_BC, twin_BC, rtol=1e-4, atol=1e-5):
        file.unlink()
        difference = (ours_BC - twin_BC).abs().max().item()
        raise UserError(
            f"the exported {twin.config.name} differs from the encoder by {difference:.2g}; "
            f"export it as {source.library}"
        )
