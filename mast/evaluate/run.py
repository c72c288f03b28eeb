"""Evaluate an encoder by several protocols in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import torch
from torch import nn

from mast.core.errors import unknown
from mast.core.run import provenance
from mast.evaluate.data import HELD_OUT, EvaluationData
from mast.evaluate.features import FrozenEncoder, crop_fraction
from mast.evaluate.protocol import Evaluator
from mast.evaluate.result import Result
from mast.evaluate.store import FeatureStore


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
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    seed: int = 0
    protocols: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def evaluate_encoder(
    encoder: nn.Module,
    data: EvaluationData,
    protocols: Sequence[str] = ("knn", "linear"),
    settings: EvaluationSettings | None = None,
    device: torch.device | str | None = None,
    store: FeatureStore | None = None,
    about: Mapping[str, Any] | None = None,
) -> list[Result]:
    """Measure a frozen encoder on labelled sets; its features are extracted once.

    Args:
        encoder: Takes images_BCHW in [0, 1], returns representation_BD; its mode is restored.
        data: Training, validation and test set.
        protocols: Names in `EVALUATORS`.
        settings: None for the defaults.
        device: Where to compute; None stays where the encoder is.
        store: Where features are kept for the next call; None keeps them for this one.
        about: What is known of the encoder, for the results.

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
    dtype = getattr(torch, settings.precision)
    frozen = FrozenEncoder(encoder, device, dtype, settings.batch_size, store)
    shared = {
        "size": data.size,
        "crop_fraction": crop_fraction(data.size),
        "batch_size": settings.batch_size,
        "precision": settings.precision,
        "held_out": HELD_OUT if data.val is None else None,
        "device": str(frozen.device),
    }
    origin = provenance()
    return [
        Result.collect(
            evaluator.run(frozen, data),
            protocol=name,
            set_name=data.test.name,
            settings={"extraction": shared, "protocol": asdict(evaluator)},
            fingerprints={part: s.fingerprint for part, s in data.named.items()},
            sizes={part: len(s) for part, s in data.named.items()},
            metric=data.metric,
            encoder=dict(about or {}),
            provenance=origin,
        )
        for name, evaluator in evaluators.items()
    ]


def evaluator(name: str, settings: EvaluationSettings) -> Evaluator:
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
    known = [setting.name for setting in fields(kind)]
    for setting in changes:
        if setting not in known:
            raise unknown(f"setting of {name}", setting, known)
    # YAML and JSON have lists where a frozen dataclass has tuples.
    fitting: dict[str, Any] = {
        setting: tuple(value) if isinstance(value, list) else value
        for setting, value in changes.items()
    }
    return kind(**fitting)


def kind_of(protocol: str) -> type[Evaluator]:
    """The class of a protocol, or a `UserError` with the nearest name there is."""
    from mast.evaluate import EVALUATORS

    if protocol not in EVALUATORS:
        raise unknown("protocol", protocol, EVALUATORS)
    return EVALUATORS[protocol]
