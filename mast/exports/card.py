"""The README.md of an export: a model card, from what the run's folder and the classifier say."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import yaml
from torch import nn

from mast.config import configuration_of
from mast.core.errors import UserError, visible
from mast.core.run import RunFolder
from mast.exports.format import Format, Place, resized
from mast.exports.original import Original
from mast.measure.learned import how_far_off, how_often_right, learned_from, what_is_told
from mast.measure.result import ENDS, Result, readable, results_in
from mast.models import Classifier, Encoder
from mast.models.encoders import stem_of

# What Markdown reads as more than text, where a line has begun already.
MARKUP = re.compile(r"[\\`*<>&~$#]|\](?=[(\[:])|(?<!\w)_|_(?!\w)|:(?=//)|(?<=\bwww)\.")
BESIDE = ("ensemble", "embedding", "retrieval")  # of what a run keeps beside its encoder


def card(
    title: str,
    form: Format,
    original: Original,
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
        original: What was exported.
        place: Where it will lie.
        run: Where the encoder was trained; of the paths of sets only the last two parts are told.
        identity: The encoder's fingerprint; scores of any other are left out.
        protocols: All by which it could have been measured.
        license: As the Hub calls it; none is named if not given.

    Returns:
        Markdown after a block of YAML, as the Hub reads it.
    """
    classifier = original.classifier
    parts = [
        _front(form, original, license, run is not None),
        f"# {_text(title)}",
        _summary(original, run is not None) if classifier is None else _classifier(original),
        f"## Use\n\n{_use(form, original, place)}",
        f"## Preprocessing\n\n{_preprocessing(form, original)}",
    ]
    if classifier is not None:
        try:
            parts += _learned(classifier)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                "the header of the classifier does not say what it learned from as this version "
                f"does ({type(error).__name__}: {error}): run `mast fit` again"
            ) from error
    if run is not None:
        heading = "Training" if classifier is None else "Pretraining of the encoder"
        parts.append(f"## {heading}\n\n{_table(('', ''), _training(run))}")
    if classifier is None:
        results = [] if run is None else _results(run, identity)
        if run is not None:
            parts.append(f"## Evaluation\n\n{_evaluation(results)}")
        limits = _limits(original, run, results, protocols)
    else:
        limits = _limits_of_classifier(classifier)
    parts.append(f"## Limits\n\n{_lines(limits)}")
    return "\n\n".join(parts) + "\n"


def _front(form: Format, original: Original, license: str | None, pretrained: bool) -> str:
    task, others = "image-classification", list[str]()
    if original.classifier is None:
        task, others = "image-feature-extraction", ["self-supervised-learning"] * pretrained
    fields: dict[str, Any] = {
        "library_name": form.library or None,
        "pipeline_tag": task,
        "license": license and _on_a_line(license),
        "tags": [task, *others, *form.tags],
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return f"---\n{yaml.safe_dump(known, sort_keys=False)}---"


def _summary(original: Original, pretrained: bool) -> str:
    encoder, size, said = original.encoder, original.size, ""
    count = encoder.dim
    if original.space is not None:
        count = original.module(original.noise(1)).shape[1]
        choice = (f"{kind}: {', '.join(names)}" for kind, names in original.chosen.items())
        said = f", to be compared by cosine ({_text('; '.join(choice))})"
    return (
        f"An encoder of images{', pretrained without labels by `mast`' * pretrained}: "
        f"{_architecture(encoder)}. {_weights(original.module)} parameters; {_images(original)} of "
        f"{size} × {size} pixels to {count} features{said}."
    )


def _classifier(original: Original) -> str:
    size, classifier = original.size, original.classifier
    assert classifier is not None
    read = "several depths" if original.reads_more else "the features"
    return (
        f"A classifier of images by `mast`: a linear layer on {read} of "
        f"{_architecture(original.encoder)}. {_weights(classifier)} parameters; "
        f"{_images(original)} of {size} × {size} pixels to the probabilities of "
        f"{len(classifier.classes)} classes."
    )


def _images(original: Original) -> str:
    channels = original.encoder.channels
    if channels == 3:
        return "RGB images"
    return f"images of {channels} channel{'s' * (channels > 1)}"


def _architecture(encoder: Encoder) -> str:
    stem, stride = "", stem_of(encoder).stem_stride
    if stride is not None:
        stem = f", its stem a 3x3 convolution of stride {stride} without max-pooling"
    return f"{_text(encoder.config.name.rpartition(':')[2])}{stem}"


def _weights(module: nn.Module) -> str:
    return f"{sum(parameter.numel() for parameter in module.parameters()):,}"


def _use(form: Format, original: Original, place: Place) -> str:
    where = "" if place.on_hub else "In this folder:\n\n"
    imports, _, load = form.line(place).partition("; ")
    to = f"`{original.output}` of shape (B, C)"
    if original.classifier is not None:
        to += " and the `names` of the likeliest classes"
    images = "images of Pillow in RGB"
    if not original.of_photos:
        channels = original.encoder.channels
        images = f"arrays of NumPy with the values of files, (H, W, {channels})"
    return (
        f"{where}```python\n{imports}\n\n{load}\n```\n\nFrom `images`, a list of {images}, "
        f"to {to}:\n\n```python\n{form.example(place)}\n```"
    )


_TAGS = (
    "The example sees values alone, so apply the tags of a file before it. Values that the file "
    "calls no data become NaN, those of a DICOM are brought into the units of its modality (slope "
    "and intercept), and where the smallest value is white (MONOCHROME1, or WhiteIsZero of a TIFF) "
    "each becomes low + high - value."
)


def _preprocessing(form: Format, original: Original) -> str:
    size, moments = original.size, original.encoder.config.normalization
    mean, std = (", ".join(f"{value:g}" for value in values) for values in moments)
    where = "inside the model" if form.normalises else "before the model"
    return (
        f"{_values(original)}; the short side resized to {resized(size)} pixels (bilinear, "
        f"antialiased), the central {size} × {size} of it; values in [0, 1], normalised {where} by "
        f"mean ({mean}) and standard deviation ({std})." + f"\n\n{_TAGS}" * (not original.of_photos)
    )


def _values(original: Original) -> str:
    """What is read of a file."""
    if original.of_photos:
        return "RGB"
    reading = original.reading
    nothing = "" if reading.no_data is None else f"{reading.no_data:g} and "
    return (
        f"{_images(original)}: values of {reading.ends} become 0 to 1, others are clipped, and "
        f"{nothing}what is not finite becomes 0"
    )


def _learned(classifier: Classifier) -> Iterator[str]:
    """From what a classifier learned and how well it does, as `mast fit` kept it."""
    names, about = classifier.classes, classifier.about
    told = what_is_told(about, len(names)) if about else f"{len(names)} classes"
    listed = ", ".join(map(_text, names))
    yield f"## Classes\n\n{_text(told)}, in the order of the probabilities: {listed}."
    if not about:
        return
    kinds = {
        "linear": "logistic regression on the encoder's features",
        "finetune": "the encoder was trained with the linear layer",
    }
    source = about["encoder"]["source"]
    space = about["encoder"].get("space", {})
    facts = {
        "images": learned_from(about, readable),
        "kind": f"{about['kind']}: {kinds[about['kind']]}",
        "encoder": readable(source) if "/" in source else source,
        **{kind: ", ".join(names) for kind, names in space.items()},
        "software": _software(about["provenance"]),
    }
    yield f"## Training\n\n{_table(('', ''), list(facts.items()))}"
    measured = {
        "right (95 % interval)": how_often_right(about),
        "probabilities": how_far_off(about),
    }
    yield f"## Evaluation\n\n{_table(('', ''), list(measured.items()))}"


def _training(run: RunFolder) -> Iterator[tuple[str, str]]:
    config, provenance = configuration_of(run), run.read_provenance()
    data = provenance.get("data", {})
    steps = max((record["step"] for record in run.read_metrics()), default=None)
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
        "software": _software(provenance),
    }
    for name, value in facts.items():
        if value:
            yield name, value


def _software(provenance: Mapping[str, Any]) -> str:
    versions = provenance.get("versions", {})
    return ", ".join(
        f"{name} {versions[name]}" for name in ("mast-ssl", "torch") if name in versions
    )


def _results(run: RunFolder, identity: str) -> list[Result]:
    """What was measured of exactly this encoder, and of it alone."""
    return [
        result
        for result in results_in(run.path)
        if result.encoder.get("fingerprint") == identity
        and result.protocol not in BESIDE
        and not result.of_classifier
    ]


def _evaluation(results: Sequence[Result]) -> str:
    if not results:
        return "Nothing was measured of this encoder yet."
    rows = [row for result in results for row in _scores(result)]
    head = ("protocol", "test set", "images", "target", "measure", "%", "95 % interval")
    notes = dict.fromkeys(
        _text(f"{readable(result.set_name)}: {note}.")
        for result in results
        for note in result.notes()
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
    original: Original, run: RunFolder | None, results: Sequence[Result], protocols: Collection[str]
) -> list[str]:
    extractions = [result.settings.get("extraction", {}) for result in results]
    sizes = sorted({extraction["size"] for extraction in extractions if "size" in extraction})
    at = f"measured at {', '.join(map(str, sizes))}" if sizes else "measured at no size"
    made = "Made" if run is None else "Trained"
    said = [f"{made} for images of {original.size} × {original.size} pixels, and {at}."]
    if run is not None:
        known = {*BESIDE, *(result.protocol for result in results)}
        if missing := [name for name in protocols if name not in known]:
            said.append(f"Protocols that were not run: {', '.join(missing)}.")
        said.append(
            "One training with one seed: the intervals say what other test images could change, "
            "not what another training could."
        )
        said.append("Not measured: images unlike those that it was trained and tested on.")
    return said


def _limits_of_classifier(classifier: Classifier) -> list[str]:
    said = [f"Trained for images of {classifier.size} × {classifier.size} pixels."]
    if classifier.about:
        said.append(
            "Judged by images that were held out of the set that it learned from; a test set was "
            "not looked at. The classifier that was judged had not seen them; the one here learned "
            "from them as well."
        )
        said.append(
            "One training with one seed: the interval says what other images could change, not "
            "what another training could."
        )
    said.append(
        "Not measured: images unlike those that it learned from, such as those of another camera "
        "or of none of the classes. They get probabilities, too, and nothing vouches for these."
    )
    return said


def _lines(said: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in said)


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> str:
    cells = [[_text(cell).replace("|", r"\|") for cell in line] for line in (head, *rows)]
    lines = [cells[0], ["---"] * len(head), *cells[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(name: str) -> str:
    """A name as Markdown that shows it, whatever is in it."""
    return MARKUP.sub(r"\\\g<0>", _on_a_line(name))


def _on_a_line(text: str) -> str:
    return visible(text).replace("\n", r"\n")
