"""Load the parts of a run other than its encoder."""

from collections.abc import Callable
from pathlib import Path

from torch import nn

from mast.config import build_method, configuration_of
from mast.core.checkpoint import load_checkpoint, previous
from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.run import RunFolder, plain
from mast.core.tensors import check_finite, read_tensors
from mast.encoders.load import Loaded, load
from mast.methods import ENCODER, Embedding, Method
from mast.models import load_encoder
from mast.models.encoders import RETRAIN, load_whole
from mast.models.lora import merged

# What a run has besides its encoder, by name.
REPRESENTATIONS: dict[str, Callable[[Method], nn.Module]] = {"embedding": Embedding}


@entry(draws=True)
def load_method(run: str | Path) -> Method:
    """The whole method of a run (projector and masks too), in evaluation mode.

    Args:
        run: A run folder. A complete run has `encoder.safetensors` (for DINO the teacher's) and
            `embedding.safetensors`; for other runs, the last checkpoint is read.

    Raises:
        UserError: No such run, none of these files, or one that does not fit the configuration.
    """
    folder = RunFolder(run)
    method = build_method(configuration_of(folder.require()))
    complete = folder.encoder.is_file() and folder.embedding.is_file()
    last = next(filter(Path.is_file, (folder.last, previous(folder.last))), folder.last)
    file = folder.embedding if complete else last
    if not file.is_file():
        raise UserError(
            f"{folder.path}: expected {folder.embedding.name} and an encoder, or a "
            f"checkpoint at {folder.last}"
        )
    if complete:
        encoder = load_encoder(folder.encoder)
        method.encoder.reading = encoder.reading  # which no configuration has
        if encoder.describe() != method.encoder.describe():
            raise UserError(f"{folder.encoder} is not the encoder that {folder.config} describes")
        tensors, _ = read_tensors(folder.embedding, RETRAIN)
        state = {f"{ENCODER}{key}": value for key, value in encoder.state_dict().items()}
        state |= tensors
        check_finite(file, state)  # to inspect a run that diverged, take its checkpoint
    else:
        state = merged(load_checkpoint(file)["module"])
    try:
        load_whole(method, state)
    except UserError as error:
        raise UserError(
            f"{file} does not fit {folder.config}; another version of mast may have written it: "
            f"{error}"
        ) from error
    return method.eval()


@entry(draws=True)
def load_embedding(run: str | Path) -> Embedding:
    """Load a run's embedding, whose invariances are chosen with each call.

    `embedding(images, ignore="color")` is invariant to the operators that change color;
    `embedding(images, match="color")` is the block exempt from that invariance, in which
    neighbors share a color.

    Args:
        run: A run folder.

    Returns:
        The embedding in evaluation mode, on the CPU: images (B, channels, H, W) in [0, 1],
        best of side `size`, to (B, D). `trained_with` lists the operators to choose from; the
        properties that they change can be named, too.

    Raises:
        UserError: As `load_method`.
    """
    return Embedding(load_method(run)).eval()


def load_representation(run: str | Path, representation: str, size: int | None = None) -> Loaded:
    """Load a representation of a run other than the encoder's.

    Args:
        run: A run folder.
        representation: A key of `REPRESENTATIONS`.
        size: Side of the views in pixels; by default that of pretraining.

    Raises:
        UserError: The run has no such representation.
    """
    loaded, method = load(run, size), load_method(run)
    module = REPRESENTATIONS[representation](method)
    description = loaded.description | {representation: plain(method.config)}
    return loaded._replace(module=module.eval(), description=description)
