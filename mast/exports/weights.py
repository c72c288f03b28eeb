"""The weights of an encoder in a file that says how to rebuild it, for us and for others."""

import json
from pathlib import Path

from mast.core.tensors import write_tensors
from mast.models import Encoder

WEIGHTS = "model.safetensors"


def write_weights(encoder: Encoder, folder: Path) -> None:
    """Write `model.safetensors`, which `mast evaluate` reads with its stem and normalization."""
    header = {
        "format": "pt",  # transformers asks for it
        "architecture": encoder.config.name,
        "options": json.dumps(encoder.config.options),
        "stem": json.dumps(
            {"stem": encoder.config.stem, "stride": encoder.small_stem, "size": encoder.size}
        ),
        **{key: json.dumps(values) for key, values in encoder.normalization._asdict().items()},
    }
    write_tensors(folder / WEIGHTS, encoder.model.state_dict(), header=header)
