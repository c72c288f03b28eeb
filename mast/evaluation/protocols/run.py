"""Evaluate an encoder by several protocols in one call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from mast.core.display import doing, track
from mast.core.errors import UserError, unknown
from mast.core.fields import build
from mast.core.run import provenance
from mast.data import crop_fraction
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import HELD_OUT, EvaluationData
from mast.evaluation.overlap import count_copies, near_copies
from mast.evaluation.protocols import EVALUATORS, Evaluator
from mast.evaluation.result import Result

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
    near_duplicates: bool = False,
) -> list[Result]:
    """Measure an encoder on labelled sets, one result per protocol; features are extracted once.

    A module takes images_BCHW in [0, 1] and returns representation_BD; it computes where it is, and
    its mode is restored. `on_result` gets each result as soon as it is ready; the saved state of
    unfinished work is removed afterwards.
    """
    settings = settings or EvaluationSettings()
    # All are made before the first runs: a typo must not cost an hour.
    for name in settings.protocols:
        make_evaluator(name, settings)
    names = (protocols,) if isinstance(protocols, str) else protocols
    evaluators = {name: make_evaluator(name, settings) for name in names}
    for name, protocol in evaluators.items():
        if not isinstance(data, protocol.needs):
            raise UserError(
                f"{name} needs {protocol.needs.__name__}, got {type(data).__name__}: annotated "
                "objects are for detection and segmentation, labelled images for the others."
            )
        if near_duplicates:
            refuse_near_duplicates(name, protocol)
    if not isinstance(encoder, FrozenEncoder):
        encoder = FrozenEncoder(encoder)
    extraction = encoder.compute.settings(data.size)
    if isinstance(data, EvaluationData):
        extraction["crop_fraction"] = crop_fraction(data.size)
        extraction["held_out"] = HELD_OUT if data.val is None else None
    for protocol in evaluators.values():
        protocol.prepare(encoder)
    copies, near = _overlap(encoder, data, near_duplicates)
    origin = provenance()
    results = []
    for name, protocol in track(evaluators.items(), "", len(evaluators), "protocols", even=False):
        with doing(name):
            result = Result.collect(
                protocol.run(encoder, data),
                protocol=name,
                set_name=data.test.name,
                settings={"extraction": extraction, "protocol": protocol.settings()},
                fingerprints=data.fingerprints,
                sizes={part: len(images) for part, images in data.named.items()},
                images=data.images,
                split=dict(data.split or {}),
                files=data.files,
                metric=data.metric,
                encoder=encoder.description,
                duplicates=copies,
                near_duplicates=near,
                provenance=origin,
            )
        results.append(result)
        if on_result is not None:
            on_result(result)
        encoder.bench.finish()
    return results


def refuse_near_duplicates(name: str, protocol: Evaluator[Any]) -> None:
    """Refuse a search for near-copies by a protocol of annotated objects."""
    if protocol.needs is not EvaluationData:
        raise UserError(
            f"near_duplicates is for labelled images, and {name} measures annotated objects: "
            "leave out one of the two"
        )


def _overlap(
    encoder: FrozenEncoder, data: Any, near_duplicates: bool
) -> tuple[dict[str, int], dict[str, Any]]:
    """Test images that may have been learned from: exact copies, and near ones if asked for."""
    tested = data.fingerprints["test"]
    same = [part for part, of in data.fingerprints.items() if part != "test" and of == tested]
    for part in same:
        _log.warning("the %s set and the test set are the same images", part)
    if not isinstance(data, EvaluationData):
        return {}, {}
    copies = count_copies(data)
    for part, count in copies.items():
        if count and part not in same:
            _log.warning(
                "%d of %d test images are in %s too, pixel for pixel: what is measured on them is "
                "too good; leave them out of one of the two", count, len(data.test), part,
            )  # fmt: skip
    if not near_duplicates:
        return copies, {}
    near = near_copies(encoder, data)
    if near["images"]:
        pairs = "".join(
            f"\n  {test} and {part}/{name} ({cosine:.4f})"
            for test, part, name, cosine in near["pairs"]
        )
        _log.warning(
            "%d of %d test images look to the encoder like one to learn from (cosine above %g), "
            "first:%s", near["images"], len(data.test), near["above"], pairs,
        )  # fmt: skip
    return copies, near


def make_evaluator(name: str, settings: EvaluationSettings) -> Evaluator[Any]:
    """Make a protocol; `settings.protocols[name]` replaces some of its defaults."""
    changes: dict[str, Any] = {"seed": settings.seed, **settings.protocols.get(name, {})}
    return build(protocol_class(name), changes, f"setting of {name}")


def protocol_class(name: str) -> type[Evaluator[Any]]:
    if name not in EVALUATORS:
        error = unknown("protocol", name, EVALUATORS)
        raise UserError(f"{error} From a clone, `python -m paper evaluate` has more.")
    return EVALUATORS[name].kind
