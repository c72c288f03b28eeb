"""Train a classifier on an encoder from labeled images, and save it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mast.commands.common import command, or_default
from mast.core.checkpoint import check_writable
from mast.core.errors import UserError, one_line
from mast.core.files import out_file, short_name
from mast.core.kinds import Device, EncoderLike
from mast.core.run import EVALUATIONS, provenance
from mast.core.table import ShownText

if TYPE_CHECKING:
    from mast.models import Classifier


Kind = Literal["linear", "finetune"]


@dataclass(frozen=True, repr=False)
class Fitted(ShownText):
    """A trained classifier."""

    path: Path
    classifier: Classifier  # in evaluation mode, on the CPU

    @property
    def about(self) -> dict[str, Any]:
        """Training set and accuracy, as stored in the file."""
        return self.classifier.about

    @property
    def text(self) -> str:
        """Summary of a few lines."""
        from mast.evaluation.tested_classifier import described

        lines = described(self.about, len(self.classifier.classes)) | {"classifier": self.path}
        return "\n".join(one_line(f"{name}: {text}") for name, text in lines.items())


@command
def fit(
    data: str | Path,
    encoder: EncoderLike | None = None,
    kind: Kind = "linear",
    out: str | Path | None = None,
    target: str | None = None,
    size: int | None = None,
    settings: Mapping[str, Any] | None = None,
    ignore: str | Sequence[str] = (),
    match: str | Sequence[str] = (),
    space: str | Path | None = None,
    device: Device = "auto",
    seed: int = 0,
    download: bool = False,
    untrained: bool = False,
    weights: str | Path | None = None,
    groups: str | None = None,
) -> Fitted:
    """Train a classifier on an encoder from labeled images, and save it.

    Trains like the protocol of the same name, on train and val, or on a whole folder with one
    subfolder per class. Hyperparameters and the calibration temperature are tuned on held-out
    images: val, or a tenth of train (a linear head, below 5,000 images: five-fold
    cross-validation). Test images are never read.

    Args:
        data: The labeled dataset, such as `flowers17`, or a folder with one subfolder per class.
        kind: "linear": logistic regression on the features; "finetune": head and encoder are
            trained together.
        out: A .safetensors file; by default `classifier-<kind>-<set>.safetensors` in the encoder's
            folder, with the target's name if the set has several.
        target: Which labels to learn, if the set has several kinds.
        settings: Settings of the protocol, overriding the defaults; on the command line as
            key=value, such as penalties=0.1,1.
        ignore: Changes that should not count: operators, properties such as color, or "all". For a
            linear head. The file stores the choice, so `mast predict` needs no option.
        seed: Random seed.
        download: Allow downloading the set and the weights.
        groups: How to recognize images of one patient, video or place: a column of a list, a
            level of subfolders from 1, or a regular expression on the path with one group. Splits
            do not divide groups; intervals are over groups. Other commands: `photos#groups=2`.

    Returns:
        The file and the classifier.
    """
    encoder = or_default(encoder, data)
    from mast.core.bench import Bench
    from mast.core.compute import Compute
    from mast.core.launch import find_device
    from mast.core.reading import Reading
    from mast.data.pieces import split_cut
    from mast.encoders.frozen import InSpace
    from mast.encoders.load import EncoderOptions, load
    from mast.evaluation.calibration import BINS, calibrate
    from mast.evaluation.labelled_sets import one_task
    from mast.evaluation.named_sets import NamedSets
    from mast.evaluation.protocols import FineTune, Linear
    from mast.evaluation.protocols.run import EvaluationSettings, make_evaluator
    from mast.evaluation.result import readable
    from mast.evaluation.tested_classifier import validation
    from mast.invariance.choice import InvarianceChoice, load_search_encoder
    from mast.invariance.subspaces import Space
    from mast.models import Classifier
    from mast.models.classifier import read_about, save_classifier
    from mast.models.encoders import copied

    if groups is not None:
        name, cut = split_cut(str(data))
        data = name + replace(cut, groups=groups).suffix
    kinds = {".safetensors": lambda path: read_about(path) is not None}
    path = None if out is None else out_file(out, kinds)
    invariances = InvarianceChoice(ignore=ignore, match=match, space=space)
    if invariances.names and kind != "linear":
        raise UserError(f"ignore, match and space: expected kind linear, got {kind}")
    options = EncoderOptions(encoder, size, weights, download, untrained, seed)
    loaded = load(*options)
    compute = Compute(find_device(device))
    bench = Bench(compute, loaded.folder / EVALUATIONS)
    sets = NamedSets(data, download=download)
    by = load_search_encoder(
        options, invariances, compute, bench=bench, loaded=loaded,
        photos=lambda size, model, _: sets.learning(size, model).train,
    )  # fmt: skip
    start = by.encoder
    pool = sets.learning(by.size, loaded.module)
    task = one_task(pool, target, seed)
    if path is None:
        several = [task.target] if len(pool.train.targets) > 1 else []
        parts = ["classifier", kind, readable(str(data)), *several, *invariances.names]
        name = short_name("-".join(parts))
        path = out_file(loaded.folder / f"{name}.safetensors", kinds)
        before = (read_about(path) or {}).get("images", {})
        if (
            before.get("set", str(data)) != str(data)
            and before["fingerprints"] != pool.fingerprints
        ):
            raise UserError(f"out: {path} was trained on {before['set']}; choose another file")
    check_writable(path.parent)
    counts = task.pool_labels_N.bincount(minlength=len(task.classes)).tolist()
    protocol = make_evaluator(kind, EvaluationSettings(seed, {kind: settings or {}}))
    assert isinstance(protocol, Linear | FineTune)
    learned = protocol.classifier(start, pool, task)
    calibration = calibrate(learned.scores_VC, learned.labels_V, seed)
    about = {
        "kind": kind,
        "target": task.target,
        "images": {
            "set": str(data),
            "whole": pool.whole,
            "sizes": {part: len(images) for part, images in pool.named.items()},
            "classes": dict(zip(task.classes, counts, strict=True)),
            "fingerprints": pool.fingerprints,
        },
        "encoder": start.description,
        "settings": {"size": by.size, "protocol": protocol.settings()},
        "validation": validation(learned, pool, task, seed),
        "calibration": {**calibration._asdict(), "bins": BINS},
        "provenance": provenance(),
    }
    whole, head = learned.encoder, learned.head
    if isinstance(whole, InSpace) and isinstance(whole.seen, Space):
        head = whole.seen.before(head)
        whole = whole.encoder
    classifier = Classifier(
        copied(whole),  # leave the user's module untouched, on its device
        head,
        task.classes,
        by.size,
        calibration.temperature,
        about,
    )
    if pool.train.reading != Reading():
        classifier.reading = pool.train.reading
    save_classifier(classifier, path)
    bench.finish()
    return Fitted(path, classifier.cpu().eval())
