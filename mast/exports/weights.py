"""The weights of an encoder in a file that says how to rebuild it, for us and for others."""

import json
from dataclasses import asdict
from pathlib import Path

from mast.core.tensors import write_tensors
from mast.models import Encoder
from mast.models.encoders import stem_of

WEIGHTS = "model.safetensors"


def write_weights(encoder: Encoder, folder: Path) -> None:
    """Write `model.safetensors`, which `mast evaluate` reads with all that it says."""
    stem, config = stem_of(encoder), encoder.config
    header = {
        "format": "pt",  # transformers asks for it
        "architecture": config.name,
        "options": json.dumps(config.options),
        "stem": json.dumps({"stem": stem.stem, "stride": stem.stem_stride, "size": encoder.size}),
        **{key: json.dumps(values) for key, values in config.normalization._asdict().items()},
    }
    if encoder.reading is not None:
        header["reading"] = json.dumps(asdict(encoder.reading))
    write_tensors(folder / WEIGHTS, encoder.model.state_dict(), header=header)
