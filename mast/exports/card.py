"""The README.md of an export: a model card, from what the run's folder and the classifier say."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment

from mast.config import configuration_of
from mast.core.errors import visible
from mast.core.run import SPACES, RunFolder
from mast.evaluation.intervals import end_names
from mast.evaluation.result import ENDS, Result, in_words, readable, results_in
from mast.evaluation.tested_classifier import (
    how_far_off,
    how_often_right,
    learned_from,
    what_is_told,
)
from mast.exports.format import Format, resized
from mast.exports.original import Original
from mast.methods import METHODS
from mast.models import Classifier, Encoder
from mast.models.encoders import stem_of

TEMPLATE = Path(__file__).with_name("card.md.jinja")
# What Markdown reads as more than text, where a line has begun already.
MARKUP = re.compile(r"[\\`*<>&~$#]|\](?=[(\[:])|(?<!\w)_|_(?!\w)|:(?=//)|(?<=\bwww)\.")
BESIDE = ("ensemble", "embedding", "retrieval")  # of what a run keeps beside its encoder


def card(
    title: str,
    form: Format,
    original: Original,
    run: RunFolder | None = None,
    identity: str = "",
    protocols: Collection[str] = (),
    license: str | None = None,
) -> str:
    """What it is, how to load it, how it was trained, how good it is and what was not measured.

    Args:
        title: The heading.
        run: Where the encoder was trained; paths of sets are shortened to their last two parts.
        identity: The encoder's fingerprint; scores of any other are left out.
        protocols: All by which it could have been measured.
        license: As the Hub calls it.

    Returns:
        Markdown after a block of YAML, as the Hub reads it.
    """
    encoder, classifier = original.encoder, original.classifier
    results = [] if run is None or classifier is not None else _results(run, identity)
    known = {*BESIDE, *(result.protocol for result in results)}
    extractions = [result.settings.get("extraction", {}) for result in results]
    unlabelled = run is not None and not METHODS[configuration_of(run).method].method.labelled
    imports, _, load = form.line(".").partition("; ")
    mean, std = (", ".join(f"{v:g}" for v in values) for values in encoder.config.normalization)
    of_channels = f"images of {encoder.channels} channel{'s' * (encoder.channels > 1)}"
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"text": _text, "table": _table}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=title,
        form=form,
        original=original,
        run=run,
        classifier=classifier,
        size=original.size,
        resized=resized(original.size),
        unlabelled=unlabelled,
        front=_front(form, original, license, unlabelled),
        architecture=_architecture(encoder),
        weights=f"{sum(each.numel() for each in original.module.parameters()):,}",
        images="RGB images" if encoder.channels == 3 else of_channels,
        features=original.module(encoder.blank(1, original.size)).shape[1]
        if original.space
        else encoder.dim,
        chosen="; ".join(f"{kind}: {', '.join(of)}" for kind, of in original.chosen.items()),
        imports=imports,
        load=load,
        mean=mean,
        std=std,
        learned=None if classifier is None else _learned(classifier),
        training=[] if run is None else _training(run),
        scores=[row for result in results for row in _scores(result)],
        notes=dict.fromkeys(
            _text(f"{readable(result.set_name)}: {note}.")
            for result in results
            for note in result.notes()
        ),
        sizes=sorted({each["size"] for each in extractions if "size" in each}),
        missing=[name for name in protocols if name not in known],
    )


def _front(form: Format, original: Original, license: str | None, unlabelled: bool) -> str:
    task, others = "image-classification", list[str]()
    if original.classifier is None:
        task, others = "image-feature-extraction", ["self-supervised-learning"] * unlabelled
    fields: dict[str, Any] = {
        "library_name": form.library or None,
        "pipeline_tag": task,
        "license": license and _on_a_line(license),
        "tags": [task, *others, *form.tags],
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return yaml.safe_dump(known, sort_keys=False)


def _architecture(encoder: Encoder) -> str:
    stem, stride, padding = "", stem_of(encoder).stem_stride, encoder.config.stem_padding
    if stride is not None:
        stem = f", its stem a 3x3 convolution of stride {stride} and padding {padding}, no max-pool"
    return f"{_text(encoder.config.name.rpartition(':')[2])}{stem}"


def _learned(classifier: Classifier) -> dict[str, Any]:
    """From what a classifier learned and how well it does, as `mast fit` kept it."""
    about, count = classifier.about, len(classifier.classes)
    if not {"kind", "encoder", "provenance"} <= about.keys():  # made in Python
        return {"classes": f"{count} classes"}
    kinds = {
        "linear": "logistic regression on the encoder's features",
        "finetune": "the encoder was trained with the linear layer",
    }
    source = about["encoder"]["source"]
    training = {
        "images": learned_from(about, readable),
        "kind": f"{about['kind']}: {kinds[about['kind']]}",
        "encoder": readable(source) if "/" in source else source,
        **{kind: ", ".join(of) for kind, of in about["encoder"].get("space", {}).items()},
        "software": _software(about["provenance"]),
    }
    evaluation = {
        "right (95 % interval)": how_often_right(about),
        "probabilities": how_far_off(about),
    }
    return {
        "classes": what_is_told(about, count),
        "training": training.items(),
        "evaluation": evaluation.items(),
    }


def _training(run: RunFolder) -> list[tuple[str, str]]:
    config, provenance = configuration_of(run), run.read_provenance()
    data = provenance.get("data", {})
    steps = max((record["step"] for record in run.read_metrics()), default=None)
    count = f"{data['images']:,} of " if "images" in data else ""
    facts = {
        "images": f"{count}{readable(config.data.spec)}",
        "recipe": config.recipe,
        "starts from": config.encoder.weights and readable(config.encoder.weights),
        "method": config.method,
        "views": f"{config.views}: {', '.join(config.preset.operators)}",
        "size of a view": f"{config.size} × {config.size} pixels",
        "epochs": f"{config.epochs:,}",
        "steps": None if steps is None else f"{steps:,}",
        "images per step": f"{config.batch_size:,}",
        "seed": str(config.seed),
        "software": _software(provenance),
    }
    return [(name, value) for name, value in facts.items() if value]


def _software(provenance: Mapping[str, Any]) -> str:
    versions = provenance.get("versions", {})
    return ", ".join(
        f"{name} {versions[name]}" for name in ("mast-ssl", "torch") if name in versions
    )


def _results(run: RunFolder, identity: str) -> list[Result]:
    """What was measured of exactly this encoder, and of it alone."""
    return [
        result
        for place in (run.path, *sorted((run.path / SPACES).glob("*")))
        for result in results_in(place)
        if result.encoder.get("fingerprint") == identity
        and result.protocol not in BESIDE
        and not result.of_classifier
    ]


def _scores(result: Result) -> Iterator[tuple[str, ...]]:
    """A row for each measure of a whole test set, not those at one magnitude or of one class."""
    tested = result.sizes.get("test")
    for target, measured in result.targets.items():
        for measure, value in measured.values.items():
            if measure.endswith(ENDS) or set("@/") & set(measure):
                continue
            ends = [measured.values.get(end) for end in end_names(measure)]
            yield (
                result.protocol,
                readable(result.set_name),
                "" if tested is None else f"{tested:,}",
                target,
                in_words(measure),
                f"{value:.1f}",
                " to ".join(f"{end:.1f}" for end in ends if end is not None),
            )


def _table(rows: Iterable[Sequence[str]], head: Sequence[str] = ("", "")) -> str:
    cells = [[_text(cell).replace("|", r"\|") for cell in line] for line in (head, *rows)]
    lines = [cells[0], ["---"] * len(head), *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(name: str) -> str:
    """A name as Markdown that shows it, whatever is in it."""
    return MARKUP.sub(r"\\\g<0>", _on_a_line(name))


def _on_a_line(text: str) -> str:
    return visible(text).replace("\n", r"\n")
