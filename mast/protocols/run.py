"""Evaluate an encoder by several protocols in one call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from mast.core.errors import UserError, unknown
from mast.core.run import provenance
from mast.measure.features import crop_fraction
from mast.measure.frozen import FrozenEncoder
from mast.measure.result import Result
from mast.measure.sets import HELD_OUT, EvaluationData, ObjectData
from mast.measure.settings import settled
from mast.protocols import EVALUATORS, Evaluator

_log = logging.getLogger("mast")


@dataclass(frozen=True)
class EvaluationSettings:
    """How to evaluate; what every protocol shares, and what differs from a protocol's defaults.

    Args:
        batch_size: Images in one forward pass of the extraction.
        precision: Of the encoder's forward pass.
        seed: Of everything a protocol draws.
        protocols: Fields to change by protocol, such as `{"knn": {"temperatures": [0.1]}}`.
    """

    batch_size: int = 256
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0
    protocols: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def evaluate_encoder(
    encoder: nn.Module | FrozenEncoder,
    data: EvaluationData | ObjectData,
    protocols: Sequence[str] = ("knn", "linear"),
    settings: EvaluationSettings | None = None,
    done: Callable[[Result], object] | None = None,
) -> list[Result]:
    """Measure an encoder on labelled sets; its features are extracted once.

    Args:
        encoder: A `FrozenEncoder`, or a module that takes images_BCHW in [0, 1] and returns
            representation_BD, whose mode is restored; it computes where it is.
        data: Training, validation and test set, of the kind that all the protocols need.
        protocols: Names in `EVALUATORS`.
        settings: None for the defaults.
        done: Called with each result as soon as it is there.

    Returns:
        One result a protocol, in their order.

    Raises:
        UserError: If a protocol or a setting is unknown, the sets do not fit together, or the
            features are not finite.
    """
    settings = settings or EvaluationSettings()
    for name in settings.protocols:
        kind_of(name)
    # All are made before the first runs: a typing error shall not cost an hour.
    evaluators = {name: evaluator(name, settings) for name in protocols}
    for name, protocol in evaluators.items():
        if not isinstance(data, protocol.needs):
            raise UserError(
                f"{name} needs {protocol.needs.__name__}, got {type(data).__name__}: annotated "
                "objects are for detection and segmentation, labelled images for the others."
            )
    if not isinstance(encoder, FrozenEncoder):
        dtype = getattr(torch, settings.precision)
        encoder = FrozenEncoder(encoder, dtype=dtype, batch_size=settings.batch_size)
    shared: dict[str, Any] = {
        "size": data.size,
        "batch_size": encoder.batch_size,
        "precision": str(encoder.dtype).removeprefix("torch."),
        "device": encoder.device.type,
        "processes": encoder.processes,
    }
    metric = "ap"
    if isinstance(data, EvaluationData):
        metric = data.metric
        shared["crop_fraction"] = crop_fraction(data.size)
        shared["held_out"] = HELD_OUT if data.val is None else None
    for protocol in evaluators.values():
        protocol.prepare(encoder)
    tested = data.fingerprints["test"]
    for part, learned in data.fingerprints.items():
        if part != "test" and learned == tested:
            _log.warning("the %s set and the test set are the same images", part)
    origin = provenance()
    results = []
    for name, protocol in evaluators.items():
        result = Result.collect(
            protocol.run(encoder, data),
            protocol=name,
            set_name=data.test.name,
            settings={"extraction": shared, "protocol": protocol.settings()},
            fingerprints=data.fingerprints,
            sizes={part: len(images) for part, images in data.named.items()},
            images=data.images,
            metric=metric,
            encoder=encoder.about,
            provenance=origin,
        )
        results.append(result)
        if done is not None:
            done(result)
        encoder.finish()
    return results


def evaluator(name: str, settings: EvaluationSettings) -> Evaluator[Any]:
    """Make a protocol with its settings.

    Args:
        name: In `EVALUATORS`.
        settings: Its `protocols[name]` replaces the protocol's defaults.

    Returns:
        The protocol.

    Raises:
        UserError: If the protocol or one of its settings is unknown.
    """
    kind = kind_of(name)
    changes: dict[str, Any] = {"seed": settings.seed, **settings.protocols.get(name, {})}
    return settled(kind, changes, name)


def kind_of(protocol: str) -> type[Evaluator[Any]]:
    """The class of a protocol, or a `UserError` with the nearest name there is."""
    if protocol not in EVALUATORS:
        raise unknown("protocol", protocol, EVALUATORS)
    return EVALUATORS[protocol]
