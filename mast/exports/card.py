"""The README.md of an export: a model card, from the run folder and the classifier."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from jinja2 import Environment

from mast.config import configuration_of
from mast.core.errors import visible
from mast.core.run import SPACES, RunFolder
from mast.evaluation.result import Result, in_words, readable, results_in
from mast.evaluation.tested_classifier import described
from mast.exports.format import Format, resized
from mast.exports.original import Original
from mast.methods import METHODS
from mast.models import Classifier

TEMPLATE = Path(__file__).with_name("card.md.jinja")
# Characters with a meaning in Markdown, within a line.
MARKUP = re.compile(r"[\\`*<>&~$#]|\](?=[(\[:])|(?<!\w)_|_(?!\w)|:(?=//)|(?<=\bwww)\.")
OF_METHODS = ("ensemble", "embedding", "retrieval")  # these fine-tune the encoder, too
KINDS = {
    "linear": "logistic regression on the encoder's features",
    "finetune": "the encoder was trained with the linear layer",
}


def card(
    title: str,
    form: Format,
    original: Original,
    run: RunFolder | None = None,
    identity: str = "",
    license: str | None = None,
) -> str:
    """Text of the model card: contents, loading, training and results.

    Args:
        title: The heading.
        run: The run that trained the encoder; paths of sets are shortened to their last two parts.
        identity: The encoder's fingerprint; scores of other encoders are left out.
        license: License in the Hub's spelling.

    Returns:
        Markdown with YAML front matter for the Hub.
    """
    encoder, classifier = original.encoder, original.classifier
    results = [] if run is None or classifier is not None else _results(run, identity)
    sizes = {result.settings.get("extraction", {}).get("size") for result in results} - {None}
    unlabelled = run is not None and not METHODS[configuration_of(run).method].method.labelled
    mean, std = (", ".join(f"{v:g}" for v in values) for values in encoder.config.normalization)
    of_channels = f"images of {encoder.channels} channel{'s' * (encoder.channels > 1)}"
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"text": _text, "table": _table}
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    with torch.inference_mode():
        outputs = original.module(encoder.blank(1, original.size)).shape[1]
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
        architecture=encoder.config.name.rpartition(":")[2],
        weights=f"{sum(each.numel() for each in original.module.parameters()):,}",
        images="RGB images" if encoder.channels == 3 else of_channels,
        outputs=outputs,
        chosen="; ".join(f"{kind}: {', '.join(of)}" for kind, of in original.chosen.items()),
        mean=mean,
        std=std,
        learned={} if classifier is None else _learned(classifier),
        training={} if run is None else _training(run),
        scores=[row for result in results for row in _scores(result)],
        notes=dict.fromkeys(
            _text(f"{readable(result.set_name)}: {note}.")
            for result in results
            for note in result.notes()
        ),
        sizes=sorted(sizes),
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


def _learned(classifier: Classifier) -> dict[str, str]:
    """Training set and accuracy of a classifier, as `mast fit` stored them."""
    about = classifier.about
    if not {"kind", "encoder", "provenance"} <= about.keys():  # made in Python
        return {}
    source = about["encoder"]["source"]
    return described(about, len(classifier.classes), readable) | {
        "kind": KINDS[about["kind"]],
        "encoder": readable(source) if "/" in source else source,
        **{kind: ", ".join(of) for kind, of in about["encoder"].get("space", {}).items()},
        "software": _software(about["provenance"]),
    }


def _training(run: RunFolder) -> dict[str, str]:
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
    return {name: value for name, value in facts.items() if value}


def _software(provenance: Mapping[str, Any]) -> str:
    versions = provenance.get("versions", {})
    return ", ".join(
        f"{name} {versions[name]}" for name in ("mast-ssl", "torch") if name in versions
    )


def _results(run: RunFolder, identity: str) -> list[Result]:
    """Results of exactly this encoder."""
    return [
        result
        for place in (run.path, *sorted((run.path / SPACES).glob("*")))
        for result in results_in(place)
        if result.encoder.get("fingerprint") == identity
        and result.protocol not in OF_METHODS
        and not result.of_classifier
    ]


def _scores(result: Result) -> Iterator[tuple[str, ...]]:
    """A row per measure of a whole test set, not of one magnitude or class."""
    images = f"{result.sizes['test']:,}" if "test" in result.sizes else ""
    about = result.protocol, readable(result.set_name), images
    for target, of in result.targets.items():
        for measure in of.measures():
            if not set("@/") & set(measure):
                value = f"{of.values[measure]:.1f}"
                yield (*about, target, in_words(measure), value, of.ends(measure))


def _table(rows: Iterable[Sequence[str]], head: Sequence[str] = ("", "")) -> str:
    """Rows as a Markdown table."""
    cells = [[_text(cell).replace("|", r"\|") for cell in line] for line in (head, *rows)]
    lines = [cells[0], ["---"] * len(head), *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(name: str) -> str:
    """A name, escaped for Markdown."""
    return MARKUP.sub(r"\\\g<0>", _on_a_line(name))


def _on_a_line(text: str) -> str:
    return visible(text).replace("\n", r"\n")
