"""Evaluate an encoder on labeled images."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mast.commands.common import command
from mast.core.arguments import as_list
from mast.core.checkpoint import check_writable
from mast.core.display import doing, say
from mast.core.errors import UserError
from mast.core.files import short_name
from mast.core.kinds import Device, EncoderLike, Precision, later
from mast.core.run import EVALUATIONS, SPACES, RunFolder

if TYPE_CHECKING:
    from mast.core.compute import Compute
    from mast.encoders.frozen import FrozenEncoder
    from mast.evaluation.named_sets import NamedSets
    from mast.evaluation.result import Result, Results
    from mast.models import Classifier
else:
    NamedSets = later("mast.evaluation.named_sets", "NamedSets")


DEFAULT = ("knn", "linear")  # protocols


@command
def evaluate(
    encoder: EncoderLike,
    data: str | Path | NamedSets | None = None,
    protocols: str | Sequence[str] = DEFAULT,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    size: int | None = None,
    device: Device = "auto",
    precision: Precision = "float32",
    seed: int = 0,
    weights: str | Path | None = None,
    untrained: bool = False,
    ignore: str | Sequence[str] = (),
    match: str | Sequence[str] = (),
    space: str | Path | None = None,
) -> Results:
    """Evaluate an encoder on labeled images.

    Hyperparameters are tuned on validation images, or on a tenth of the training images if there
    are none; the test set is scored once. Results go to `evaluations/<protocol>-<set>.json` in the
    run folder; for random weights in `runs/<name>-random-<seed>`, for published weights in
    `runs/<name or file>-<SHA-256>`, for a module in `runs/<class>-<SHA-256>`; with ignore, match or
    space below `spaces/` there.

    Args:
        data: The labeled dataset, such as `flowers17`, or a folder with one subfolder per class,
            where a random fifth of each class is held out for testing. In Python also `NamedSets`,
            for splits in different places.
        protocols: Names of protocols (`mast show protocols`), in the order they run.
        settings: Settings by protocol, overriding the defaults; on the command line as key=value,
            such as knn.temperatures=0.1.
        precision: Precision of the forward pass and of training; as in `mast pretrain`.
        seed: Seed of the protocols and of the test split of a folder without splits.
        untrained: Evaluate the weights that a run started from (results go to `untrained/` in the
            run folder), or an architecture with random ones.

    Returns:
        One result per protocol, in the first process only.
    """
    from torch import nn

    from mast.core.bench import Bench
    from mast.core.compute import Compute
    from mast.core.launch import find_device, launch_processes, make_fabric, type_of
    from mast.core.tensors import digest
    from mast.encoders.load import EncoderOptions, frozen, load
    from mast.evaluation.named_sets import NamedSets
    from mast.evaluation.protocols.run import (
        EvaluationSettings,
        evaluate_encoder,
        make_evaluator,
        protocol_class,
    )
    from mast.evaluation.result import Results
    from mast.invariance.adapted import Adapted, tensors_of
    from mast.invariance.choice import InvarianceChoice, load_search_encoder
    from mast.runs.load import load_representation
    from mast.runs.start import load_untrained

    dtype = type_of(precision, find_device(device))
    sets = data if isinstance(data, NamedSets) else NamedSets(data)
    if (classifier := _classifier(encoder)) is not None:
        given = {
            "settings": settings, "weights": weights, "untrained": untrained, "ignore": ignore,
            "match": match, "space": space,
            "size": size not in (None, classifier.size),
            "protocols": protocols != DEFAULT,
        }  # fmt: skip
        if refused := [name for name, value in given.items() if value]:
            raise UserError(f"{', '.join(refused)}: expected none with a classifier")
        compute = Compute(find_device(device), dtype)
        return Results([_tested(classifier, encoder, sets, compute, seed)])
    names = as_list(protocols)
    if idle := sorted({*(settings or {})} - {*names}):
        raise UserError(f"settings: {', '.join(idle)} not among protocols {', '.join(names)}")
    invariances = InvarianceChoice(ignore=ignore, match=match, space=space)
    is_run = not isinstance(encoder, nn.Module) and RunFolder(encoder).config.is_file()
    if untrained and (weights is not None or isinstance(encoder, nn.Module)):
        raise UserError("untrained: expected a run or an architecture, not weights or a module")
    if untrained and is_run and invariances.names:
        raise UserError("untrained: excludes ignore, match and space for a run")
    options = EncoderOptions(encoder, size, weights, sets.download, untrained, seed)
    with doing("setting up devices"):
        fabric = make_fabric(device, precision)
    with launch_processes(fabric, lambda: "the same command resumes"):
        compute = Compute(fabric.device, dtype, fabric=fabric)
        first_weights = untrained and is_run
        loaded = (
            load_untrained(cast(str | Path, encoder), size) if first_weights else load(*options)
        )
        if name := "-".join(invariances.names):
            if isinstance(encoder, Adapted):  # the same encoder may be adapted in several ways
                name += f"-{digest(tensors_of(encoder))[:8]}"
            loaded = loaded._replace(folder=loaded.folder / SPACES / short_name(name))
        bench = Bench(compute, loaded.folder / EVALUATIONS)
        by = load_search_encoder(
            options, invariances, compute, bench,
            lambda size, model, _: sets.learning(size, model).train, loaded,
        )  # fmt: skip
        measured = by.encoder
        if is_run and not (name or untrained or weights is not None):

            @functools.cache
            def representation(name: str) -> FrozenEncoder:
                of_run = load_representation(cast(str | Path, encoder), name, size)
                return frozen(of_run, encoder, compute)

            measured.representations = representation

        # Fail before anything runs for hours.
        common = EvaluationSettings(seed=seed, protocols=settings or {})
        for name in names:
            make_evaluator(name, common)
        if fabric.is_global_zero and sets == NamedSets():
            say("data: none, so the generated set `factors` is used")
        groups = [
            (sets.open(kind, by.size, seed, loaded.module), list(group))
            for kind, group in itertools.groupby(names, lambda name: protocol_class(name).needs)
        ]
        if fabric.is_global_zero:
            check_writable(loaded.folder / EVALUATIONS)

        results = Results()

        def write(result: Result) -> None:
            if fabric.is_global_zero:
                say(f"done: {result.write(loaded.folder)}")
                results.append(result)

        for opened, group in groups:
            evaluate_encoder(measured, opened, group, common, write)
        return results


def _classifier(encoder: EncoderLike) -> Classifier | None:
    """The classifier, if `encoder` is or names one."""
    from torch import nn

    from mast.models import Classifier, load_classifier
    from mast.models.classifier import read_about

    if isinstance(encoder, nn.Module):
        return encoder if isinstance(encoder, Classifier) else None
    return load_classifier(encoder) if read_about(Path(encoder)) is not None else None


def _tested(
    classifier: Classifier, source: EncoderLike, sets: NamedSets, compute: Compute, seed: int
) -> Result:
    """Test a classifier; the result goes next to its file, or to a folder named by its weights."""
    from torch import nn

    from mast.encoders.fingerprint import fingerprint
    from mast.encoders.load import short_folder
    from mast.evaluation.tested_classifier import test_classifier
    from mast.models.classifier import NAME

    if isinstance(source, nn.Module):
        folder, name = short_folder("Classifier", fingerprint(classifier, {})), NAME
    else:
        file = Path(source)
        folder = file.parent
        name = file.stem if file.stem.startswith(NAME) else f"{NAME}-{file.stem}"
    check_writable(folder / EVALUATIONS)
    canvases, metric = sets.testing(classifier.size, classifier)
    result = test_classifier(classifier, name, canvases, metric, compute, seed)
    say(f"done: {result.write(folder)}")
    return result
