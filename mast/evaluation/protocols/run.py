"""Evaluate an encoder by several protocols in one call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from mast.core.display import doing, track
from mast.core.errors import UserError, unknown
from mast.core.fields import change
from mast.core.run import provenance
from mast.data.decode import crop_fraction
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import HELD_OUT, EvaluationData
from mast.evaluation.protocols import EVALUATORS, Evaluator
from mast.evaluation.result import Result, notes_on_copies

_log = logging.getLogger("mast")


@dataclass(frozen=True)
class EvaluationSettings:
    """What differs from the protocols' defaults: the seed, and fields to change by protocol, such
    as `{"knn": {"temperatures": [0.1]}}`.
    """

    seed: int = 0
    protocols: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def evaluate_encoder(
    encoder: nn.Module | FrozenEncoder,
    data: Any,
    protocols: str | Sequence[str] = ("knn", "linear"),
    settings: EvaluationSettings | None = None,
    on_result: Callable[[Result], object] | None = None,
) -> list[Result]:
    """Measure an encoder on labelled sets, one result per protocol; features are extracted once.

    A module takes images_BCHW in [0, 1] and returns representation_BD; it computes where it is, and
    its mode is restored. `on_result` gets each result as soon as it is ready; the saved state of
    unfinished work is removed afterwards.
    """
    settings = settings or EvaluationSettings()
    names = (protocols,) if isinstance(protocols, str) else protocols
    # All are made before the first runs: a typo must not cost an hour.
    evaluators = {name: make_evaluator(name, settings) for name in (*names, *settings.protocols)}
    if not isinstance(encoder, FrozenEncoder):
        encoder = FrozenEncoder(encoder)
    extraction = encoder.compute.settings(data.size)
    copies: dict[str, int] = {}
    if isinstance(data, EvaluationData):
        extraction["crop_fraction"] = crop_fraction(data.size)
        extraction["held_out"] = HELD_OUT if data.val is None else None
        copies = count_copies(data)
        for note in notes_on_copies(copies, len(data.test)):
            _log.warning(note)
    origin = provenance()
    results = []
    for name in track(names, "", len(names), "protocols", even=False):
        with doing(name):
            result = Result.collect(
                evaluators[name].run(encoder, data),
                protocol=name,
                set_name=data.test.name,
                settings={"extraction": extraction, "protocol": evaluators[name].settings()},
                fingerprints=data.fingerprints,
                sizes={part: len(images) for part, images in data.named.items()},
                images=data.images,
                split=dict(data.split or {}),
                files=data.files,
                metric=data.metric,
                encoder=encoder.description,
                duplicates=copies,
                provenance=origin,
            )
        results.append(result)
        if on_result is not None:
            on_result(result)
        encoder.bench.finish()
    return results


def count_copies(data: EvaluationData) -> dict[str, int]:
    """Number of test images whose canvas has an exact copy in each of the other parts."""
    test_M, copies = data.test.pixels.checksum_N, dict[str, int]()
    for part, of in data.pool_by_part.items():
        # Different images may share a checksum: only those are read and compared.
        sum_N = of.pixels.checksum_N
        known = {*of.part(np.flatnonzero(np.isin(sum_N, test_M))).pixel_digests}
        candidates = data.test.part(np.flatnonzero(np.isin(test_M, sum_N))).pixel_digests
        copies[part] = sum(digest in known for digest in candidates)
    return copies


def make_evaluator(name: str, settings: EvaluationSettings) -> Evaluator[Any]:
    """Make a protocol; `settings.protocols[name]` replaces some of its defaults."""
    changes = {"seed": settings.seed, **settings.protocols.get(name, {})}
    try:
        return change(protocol_class(name)(), changes, "setting")
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def protocol_class(name: str) -> type[Evaluator[Any]]:
    if name not in EVALUATORS:
        error = unknown("protocol", name, EVALUATORS)
        raise UserError(f"{error} From a clone, `python -m paper evaluate` has more.")
    return EVALUATORS[name].kind
