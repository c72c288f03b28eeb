"""The README.md of an export: a model card, written from what the run's folder says."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import yaml

from mast.config import configuration_of
from mast.core.run import RunFolder
from mast.exports.format import Format, Place, resized
from mast.measure.result import ENDS, Result, readable
from mast.models import Encoder
from mast.models.encoders import stem_of
from mast.runs.scores import results_of

BESIDE = ("ensemble", "embedding", "retrieval")  # of what a run keeps beside its encoder


def card(
    title: str,
    form: Format,
    encoder: Encoder,
    place: Place,
    run: RunFolder | None = None,
    identity: str = "",
    protocols: Collection[str] = (),
    license: str | None = None,
) -> str:
    """What it is, how to load it, how it was trained, how good it is and what nobody measured.

    Args:
        title: The heading.
        form: How it is loaded.
        encoder: What was exported.
        place: Where it will lie.
        run: Where it was trained; of the paths of sets only the last two parts are told.
        identity: The encoder's fingerprint; scores of any other are left out.
        protocols: All by which it could have been measured.
        license: As the Hub calls it; none is named if not given.

    Returns:
        Markdown after a block of YAML, as the Hub reads it.
    """
    results = [] if run is None else _results(run, identity)
    parts = [
        _front(form, license),
        f"# {title}",
        _summary(encoder),
        f"## Use\n\n{_use(form, place)}",
        f"## Preprocessing\n\n{_preprocessing(form, encoder)}",
    ]
    if run is not None:
        parts += [
            f"## Training\n\n{_table(('', ''), _training(run))}",
            f"## Evaluation\n\n{_evaluation(results)}",
        ]
    parts.append(f"## Limits\n\n{_limits(encoder, run, results, protocols)}")
    return "\n\n".join(parts) + "\n"


def _front(form: Format, license: str | None) -> str:
    fields: dict[str, Any] = {
        "library_name": form.library or None,
        "pipeline_tag": "image-feature-extraction",
        "license": license,
        "tags": ["image-feature-extraction", "self-supervised-learning", *form.tags],
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return f"---\n{yaml.safe_dump(known, sort_keys=False)}---"


def _summary(encoder: Encoder) -> str:
    weights = sum(parameter.numel() for parameter in encoder.model.parameters())
    stem, stride = "", stem_of(encoder).stem_stride
    if stride is not None:
        stem = f", its stem a 3x3 convolution of stride {stride} without max-pooling"
    return (
        f"An encoder of images, pretrained without labels by `mast`: "
        f"{encoder.config.name.rpartition(':')[2]}{stem}. {weights:,} parameters; RGB images of "
        f"{encoder.size} × {encoder.size} pixels to {encoder.dim} features."
    )


def _use(form: Format, place: Place) -> str:
    where = "" if place.on_hub else "In this folder:\n\n"
    imports, _, load = form.line(place).partition("; ")
    return (
        f"{where}```python\n{imports}\n\n{load}\n```\n\nFrom `images`, a list of images of Pillow "
        f"in RGB, to `features` of shape (B, C):\n\n```python\n{form.example(place)}\n```"
    )


def _preprocessing(form: Format, encoder: Encoder) -> str:
    size, moments = encoder.size, encoder.config.normalization
    mean, std = (", ".join(f"{value:g}" for value in values) for values in moments)
    where = "inside the model" if form.normalises else "before the model"
    return (
        f"RGB; the short side resized to {resized(size)} pixels (bilinear, antialiased), the "
        f"central {size} × {size} of it; values in [0, 1], normalised {where} by mean ({mean}) and "
        f"standard deviation ({std})."
    )


def _training(run: RunFolder) -> Iterator[tuple[str, str]]:
    config, provenance = configuration_of(run), run.read_provenance()
    data = provenance.get("data", {})
    steps = max((record["step"] for record in run.read_metrics()), default=None)
    versions = provenance.get("versions", {})
    count = f"{data['images']:,} of " if "images" in data else ""
    facts = {
        "images": f"{count}{readable(config.data.spec)}",
        "recipe": config.recipe or None,
        "starts from": readable(config.encoder.weights) if config.encoder.weights else None,
        "method": config.method,
        "views": f"{config.views}: {', '.join(config.preset.operators)}",
        "size of a view": f"{config.size} × {config.size} pixels",
        "epochs": f"{config.epochs:,}",
        "steps": None if steps is None else f"{steps:,}",
        "images a step": f"{config.batch_size:,}",
        "seed": str(config.seed),
        "software": ", ".join(
            f"{name} {versions[name]}" for name in ("mast-ssl", "torch") if name in versions
        ),
    }
    for name, value in facts.items():
        if value:
            yield name, value


def _results(run: RunFolder, identity: str) -> list[Result]:
    """What was measured of exactly this encoder, and of it alone."""
    return [
        result
        for result in results_of(run)
        if result.encoder.get("fingerprint") == identity and result.protocol not in BESIDE
    ]


def _evaluation(results: Sequence[Result]) -> str:
    if not results:
        return "Nothing was measured of this encoder yet."
    rows = [row for result in results for row in _scores(result)]
    head = ("protocol", "test set", "images", "target", "measure", "%", "95 % interval")
    notes = dict.fromkeys(
        f"{readable(result.set_name)}: {note}." for result in results for note in result.notes()
    )
    return "\n\n".join([_table(head, rows), *notes])


def _scores(result: Result) -> Iterator[tuple[str, ...]]:
    """A row for each measure of a whole test set, not those at one magnitude or of one class."""
    tested = result.sizes.get("test")
    for target, measured in result.targets.items():
        for measure, value in measured.values.items():
            if measure.endswith(ENDS) or set("@/") & set(measure):
                continue
            ends = [measured.values.get(f"{measure}{end}") for end in ENDS]
            yield (
                result.protocol,
                readable(result.set_name),
                "" if tested is None else f"{tested:,}",
                target,
                measure.replace("_", " "),
                f"{value:.1f}",
                " to ".join(f"{end:.1f}" for end in ends if end is not None),
            )


def _limits(
    encoder: Encoder, run: RunFolder | None, results: Sequence[Result], protocols: Collection[str]
) -> str:
    sizes = sorted({result.settings["extraction"]["size"] for result in results})
    at = f"measured at {', '.join(map(str, sizes))}" if sizes else "measured at no size"
    said = [f"Trained for images of {encoder.size} × {encoder.size} pixels, and {at}."]
    if run is not None:
        known = {*BESIDE, *(result.protocol for result in results)}
        if missing := [name for name in protocols if name not in known]:
            said.append(f"Protocols that were not run: {', '.join(missing)}.")
        said.append(
            "One training with one seed: the intervals say what other test images could change, "
            "not what another training could."
        )
        said.append("Not measured: images unlike those that it was trained and tested on.")
    return "\n".join(f"- {line}" for line in said)


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
