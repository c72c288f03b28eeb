"""The weights from which a run starts, where they are not random."""

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from mast.config import PretrainConfig, build_method, configuration_of, read
from mast.core.display import silent
from mast.core.errors import UserError
from mast.core.run import RunFolder, plain
from mast.encoders.fingerprint import fingerprint
from mast.encoders.load import Loaded, load
from mast.methods import Method
from mast.models import (
    Encoder,
    EncoderConfig,
    architecture_of,
    is_foreign,
    load_encoder,
    named_weights,
    near_weights,
    stem_of,
)
from mast.models.encoders import usual_normalization

_log = logging.getLogger("mast")


def with_architecture(config: PretrainConfig) -> PretrainConfig:
    """A configuration whose encoder is that of the weights from which the run starts.

    A run that was started knows its architecture, and does not need the weights again.

    Raises:
        UserError: No such weights, they define no architecture and do not fit `encoder.name`, or
            the configuration has another stem, normalisation or number of channels; weights of RGB
            serve any number of channels.
    """
    wanted, run = config.encoder, RunFolder(config.folder())
    if wanted.weights is None:
        return config
    started = read(run.config).encoder if run.config.is_file() else None
    if started is not None and started.weights == wanted.weights:
        known = started
    else:
        known = _agreed(wanted, _architecture(_load(config)[0], config.size))
    encoder = replace(
        known,
        options=known.options | wanted.options,
        stem_stride=wanted.stem_stride or known.stem_stride,
        weights=wanted.weights,
        freeze=wanted.freeze,
        freeze_statistics=wanted.freeze_statistics,
    )
    return replace(config, encoder=encoder)


def _agreed(wanted: EncoderConfig, known: EncoderConfig) -> EncoderConfig:
    """The architecture of weights, with the fields of the configuration that they leave open.

    A file of another project records neither stride nor normalisation, and weights of RGB do not
    say how images of other channels are normalised. All other fields must be those of the weights.
    """
    if wanted.channels not in (3, known.channels):
        if known.channels != 3:
            raise UserError(
                f"encoder.weights {wanted.weights} are of images of {known.channels} channels, and "
                f"these have {wanted.channels}: only weights of RGB can start with other channels"
            )
        known = replace(known, **wanted.normalization._asdict())
    open_fields = []
    if is_foreign(Path(str(wanted.weights))):
        open_fields += ["stem_stride"] if known.stem == "small" else []
        open_fields += ["mean", "std"] if named_weights(wanted.name) is None else []  # a tag has
    usual = EncoderConfig(**usual_normalization(wanted.channels)._asdict())
    for name in ("stem", "stem_stride", "stem_padding", "mean", "std"):
        ours, theirs = getattr(wanted, name), getattr(known, name)
        if ours in (getattr(usual, name), theirs):
            continue
        if name not in open_fields:
            ours, theirs = (list(of) if isinstance(of, tuple) else of for of in (ours, theirs))
            raise UserError(
                f"encoder.{name} is {ours}, and encoder.weights {wanted.weights} were trained "
                f"with {theirs}: leave encoder.{name} out"
            )
        known = replace(known, **{name: ours})
    return known


def start(method: Method, config: PretrainConfig) -> dict[str, Any] | None:
    """Give a method's encoder the weights from which its run starts.

    Args:
        method: Of the configuration; its other parts stay random.
        config: As `with_architecture` returns it.

    Returns:
        A description of the weights with their fingerprint; None for random ones.
    """
    if config.encoder.weights is None:
        return None
    with silent():  # as `with_architecture` said it
        source, description = _load(config)
    try:
        method.load_encoder(method.encoder.weights_of(source))
    except RuntimeError as error:
        raise UserError(
            f"the weights {config.encoder.weights} do not fit {config.encoder.name!r} at size "
            f"{config.size} with options {config.encoder.options}: {' '.join(str(error).split())}"
        ) from error
    if (channels := method.encoder.channels) != source.channels:
        _log.warning(
            "the weights are of RGB: those of the first layer are repeated over %d channels, and "
            "rescaled by 3/%d", channels, channels,
        )  # fmt: skip
    normalization = method.encoder.describe().get("normalization")  # the file may not have it
    described = description | ({"normalization": normalization} if normalization else {})
    return described | {"fingerprint": fingerprint(source, description)}


def load_untrained(run: str | Path, size: int | None = None) -> Loaded:
    """The encoder of a run folder with the weights that it started from, for comparison.

    As `load`; its evaluations belong to `untrained/` in the run folder. Weights that are gone, or
    others now, are an error.
    """
    folder = RunFolder(run).require()
    config = configuration_of(folder)
    method = build_method(config)
    started_from = start(method, config)
    known = folder.read_provenance().get("started_from")
    if started_from is not None and known is not None and known != plain(started_from):
        raise UserError(
            f"{config.encoder.weights} holds other weights than those from which {folder.path} "
            "was started: restore them"
        )
    encoder = method.encoder.eval()
    if folder.encoder.is_file():
        encoder.reading = load_encoder(folder.encoder).reading
    size = encoder.size if size is None else size
    return Loaded(encoder, size, encoder.describe(), folder.untrained)


def _load(config: PretrainConfig) -> tuple[Encoder, dict[str, Any]]:
    """The encoder that has the weights, at the run's size if they leave that open; description."""
    wanted, weights = config.encoder, str(config.encoder.weights)
    file = Path(weights)
    if not os.path.exists(file) and named_weights(weights) is None and "/" not in weights:
        raise UserError(
            f"encoder.weights {weights!r:.200} is neither a file nor a run folder, nor a name of "
            f"timm with a tag, such as {' or '.join(near_weights(weights))}"
        )
    size = None if os.path.isdir(file) else config.size
    if not is_foreign(file):
        loaded = load(weights, size=size, download=config.data.download)
    else:  # a name that fits may say more than what can be inferred
        try:
            loaded = load(wanted.name, size=size, weights=weights, options=wanted.options)
        except UserError as error:
            try:
                loaded = load(weights, size=size)
            except UserError:
                raise error from None
    if not isinstance(loaded.module, Encoder):
        raise UserError(f"encoder.weights {weights} are features: name an encoder's weights")
    return loaded.module, loaded.description


def _architecture(encoder: Encoder, size: int) -> EncoderConfig:
    """The configuration that rebuilds an encoder for views of another size, weights apart."""
    config = encoder.config
    options = dict(config.options)
    if getattr(encoder.model, "pos_embed", None) is not None and size != encoder.size:
        # Position embeddings stay those of the trained size, and are interpolated.
        options = {"img_size": encoder.size, "dynamic_img_size": True} | options
    name = architecture_of(config.name)
    return replace(config, name=name, options=options, **stem_of(encoder)._asdict())
