"""An encoder built by timm or torchvision as they are, with our weights: its head, its file."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from mast.core.errors import UserError
from mast.core.tensors import write_tensors
from mast.exports.format import ANY, EXACT, alike
from mast.models import Classifier, Encoder
from mast.models.encoders import ZERO_INIT, stem_of

WEIGHTS = "model.safetensors"


def stock(encoder: Encoder, library: Literal["timm", "torchvision"]) -> Encoder:
    """The same architecture by a library, with an encoder's weights.

    Args:
        encoder: In evaluation mode.
        library: Which builds it; not always the one that built the encoder.

    Returns:
        An encoder whose model, called by itself, gives the same features.

    Raises:
        UserError: The library has no such model, or one that gives something else.
    """
    twin = _built(encoder, library)
    shape = (2, encoder.channels, encoder.size, encoder.size)
    images_BCHW = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        ours_BC = encoder(images_BCHW)
        theirs = twin.model((images_BCHW - encoder.mean) / encoder.std)
    if theirs.shape != ours_BC.shape or not alike(ours_BC, theirs, EXACT):
        raise UserError(
            f"the model that {library} calls {twin.config.name.rpartition(':')[2]!r} gives other "
            f"features than the encoder, whose last feature map is averaged; {ANY}"
        )
    return twin


def _built(encoder: Encoder, library: str) -> Encoder:
    options = encoder.config.options
    if library != encoder.library:
        # How weights start does not matter once they are loaded.
        options = {key: value for key, value in options.items() if key != ZERO_INIT}
    name = encoder.config.name.rpartition(":")[2]
    config = replace(encoder.config, name=f"{library}:{name}", options=options)
    try:
        twin = Encoder(config, encoder.size)
        twin.model.load_state_dict(encoder.model.state_dict())
    except (UserError, RuntimeError) as error:
        raise UserError(
            f"{library} has no model with the weights of {encoder.config.name!r}; {ANY}"
        ) from error
    twin.reading = encoder.reading
    return twin.eval()


def scores_head(classifier: Classifier) -> nn.Linear:
    """The head of a classifier with its temperature inside, for libraries that expect scores.

    Their softmax is the probabilities.
    """
    with torch.no_grad():
        weight_CD = classifier.head.weight / classifier.temperature
        bias_C = classifier.head.bias / classifier.temperature
    head = nn.Linear(weight_CD.shape[1], weight_CD.shape[0])
    head.load_state_dict({"weight": weight_CD, "bias": bias_C})
    return head


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
