"""Starting weights of a run, if not random."""

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from mast.config import PretrainConfig, build_method, configuration_of, read
from mast.core.display import silent
from mast.core.errors import UserError
from mast.core.run import RunFolder, plain
from mast.encoders.fingerprint import fingerprint
from mast.encoders.load import Loaded, load
from mast.methods import Method
from mast.models import Encoder, EncoderConfig, load_encoder
from mast.models.encoders import stem_stride, usual_normalization
from mast.models.foreign import is_foreign
from mast.models.pretrained import architecture_of, named_weights, near_weights

_log = logging.getLogger("mast")


def with_architecture(config: PretrainConfig) -> PretrainConfig:
    """The configuration, with the architecture of its starting weights.

    A run that has started stores its architecture, so the weights are not needed again.

    Raises:
        UserError: No such weights; they neither define an architecture nor fit `encoder.name`; or
            the configuration has another stem, normalization or number of channels. RGB weights
            fit any number of channels.
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
        lora=wanted.lora,
    )
    return replace(config, encoder=encoder)


def _agreed(wanted: EncoderConfig, known: EncoderConfig) -> EncoderConfig:
    """The architecture of the weights; fields that they do not define come from the configuration.

    Files of other projects record neither stride nor normalization, and RGB weights do not define
    the normalization of other channels. All other fields must equal those of the weights.
    """
    if wanted.channels not in (3, known.channels):
        if known.channels != 3:
            raise UserError(
                f"encoder.weights: expected {wanted.channels} channels or RGB, got "
                f"{known.channels} channels in {wanted.weights}"
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
                f"encoder.{name}: expected {theirs}, with which {wanted.weights} was trained, "
                f"got {ours}"
            )
        known = replace(known, **{name: ours})
    return known


def start(method: Method, config: PretrainConfig) -> dict[str, Any] | None:
    """Load the starting weights into a method's encoder.

    Args:
        method: The configured method; its other parts stay random.
        config: The result of `with_architecture`.

    Returns:
        A description of the weights with their fingerprint; None for random ones.
    """
    if config.encoder.weights is None:
        return None
    with silent():  # with the message of `with_architecture`
        source, description = _load(config)
    try:
        method.load_encoder(method.encoder.weights_of(source))
    except RuntimeError as error:
        raise UserError(
            f"encoder.weights {config.encoder.weights} do not fit {config.encoder.name!r} at size "
            f"{config.size} with options {config.encoder.options}: {' '.join(str(error).split())}"
        ) from error
    if (channels := method.encoder.channels) != source.channels:
        _log.warning(
            "the weights are for RGB: the first layer's are repeated over %d channels and "
            "rescaled by 3/%d", channels, channels,
        )  # fmt: skip
    normalization = method.encoder.describe().get("normalization")  # the file may not have it
    described = description | ({"normalization": normalization} if normalization else {})
    return described | {"fingerprint": fingerprint(source, description)}


def load_untrained(run: str | Path, size: int | None = None) -> Loaded:
    """The encoder of a run with its starting weights, for comparison.

    Like `load`; evaluations go to `untrained/` in the run folder. Missing or changed weights are
    an error.
    """
    folder = RunFolder(run).require()
    config = configuration_of(folder)
    method = build_method(config)
    started_from = start(method, config)
    known = folder.read_provenance().get("started_from")
    if started_from is not None and known is not None and known != plain(started_from):
        raise UserError(
            f"untrained: {config.encoder.weights} changed since {folder.path} started; restore "
            "the file"
        )
    encoder = method.encoder.eval()
    if folder.encoder.is_file():
        encoder.reading = load_encoder(folder.encoder).reading
    size = encoder.size if size is None else size
    return Loaded(encoder, size, encoder.describe(), folder.untrained)


def _load(config: PretrainConfig) -> tuple[Encoder, dict[str, Any]]:
    """The encoder with the weights, at the run's size unless they fix one; a description."""
    wanted, weights = config.encoder, str(config.encoder.weights)
    file = Path(weights)
    if not os.path.exists(file) and named_weights(weights) is None and "/" not in weights:
        raise UserError(
            f"encoder.weights: expected a file, a run folder or a timm name with a tag, such as "
            f"{' or '.join(near_weights(weights))}, got {weights!r:.200}"
        )
    size = None if os.path.isdir(file) else config.size
    if not is_foreign(file):
        loaded = load(weights, size=size, download=config.data.download)
    else:  # a name may say more than can be inferred
        try:
            loaded = load(wanted.name, size=size, weights=weights, options=wanted.options)
        except UserError as error:
            try:
                loaded = load(weights, size=size)
            except UserError:
                raise error from None
    if not isinstance(loaded.module, Encoder):
        raise UserError(f"encoder.weights: expected an encoder, got the features {weights}")
    return loaded.module, loaded.description


def _architecture(encoder: Encoder, size: int) -> EncoderConfig:
    """The configuration that rebuilds an encoder (without weights) for another size."""
    config = encoder.config
    options = dict(config.options)
    if getattr(encoder.model, "pos_embed", None) is not None and size != encoder.size:
        # Position embeddings are interpolated from the trained size.
        options = {"img_size": encoder.size, "dynamic_img_size": True} | options
    name, stride = architecture_of(config.name), stem_stride(encoder.model, config, encoder.size)
    stem: Literal["standard", "small"] = "small" if stride else "standard"
    return replace(config, name=name, options=options, stem=stem, stem_stride=stride)
