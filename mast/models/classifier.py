"""An encoder with a head that predicts classes, and the file that holds both.

Shapes: B images per batch, D dimensions of the representation, C classes.
"""

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from mast.core.arguments import argument
from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.files import quoted
from mast.core.reading import Reading, read_reading
from mast.core.tensors import check_finite, read_header, read_metadata, read_tensors, write_tensors
from mast.models.depths import Depths
from mast.models.encoders import (
    Encoder,
    check_size,
    checked_for,
    copied,
    described_encoder,
    load_whole,
)

NAME = "classifier"  # in a file's name and in its header
REMEDY = "restore it, or run `mast fit` again"
_log = logging.getLogger(__name__)


class Prediction(NamedTuple):
    """The output of a classifier.

    Attributes:
        classes: The likeliest class of each.
        probability_B: The probability of that class.
        margin_B: The difference from the second likeliest class's probability.
        probability_BC: Of every class, in the order of `Classifier.classes`.
    """

    classes: tuple[str, ...]
    probability_B: Tensor
    margin_B: Tensor
    probability_BC: Tensor


@final
class Classifier(nn.Module):
    """Images (B, channels, H, W) in [0, 1] to the probabilities of C classes.

    Args:
        encoder: From images to (B, D); all depths of an encoder if it was learned in a space.
        head: From (B, D) to scores (B, C).
        classes: Names of the C classes.
        size: Side of the views in pixels that it was made for.
        temperature: Divides scores, so that probabilities match how often predictions are right.
        about: Its training images and accuracy, as JSON.

    Attributes:
        reading: How the values of files become images; None for 8-bit RGB.
    """

    @entry()
    def __init__(
        self,
        encoder: nn.Module,
        head: nn.Linear,
        classes: Sequence[str],
        size: int,
        temperature: float = 1.0,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if len(classes) != head.out_features or len(classes) < 2:
            raise UserError(f"classes: expected {max(2, head.out_features)}, got {len(classes)}")
        if len(set(classes)) < len(classes):  # tables and counts go by them
            twice = Counter(classes).most_common(1)[0][0]
            raise UserError(f"classes: expected different names, got {twice!r} twice")
        if not 0 < temperature < math.inf:
            raise UserError(f"temperature: expected a number in (0, inf), got {temperature}")
        check_size(size)
        self.encoder = encoder
        self.head = head
        self.classes = tuple(classes)
        self.size = size
        self.temperature = temperature
        self.about = dict(about or {})
        self.reading: Reading | None = (
            encoder.reading if isinstance(encoder, Encoder | Depths) else None
        )

    @property
    def channels(self) -> int:
        """The number of channels of the images."""
        if isinstance(self.encoder, Encoder | Depths):
            return self.encoder.channels
        return (self.reading or Reading()).layout.channels

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Probabilities (B, C) of images (B, channels, H, W) in [0, 1]."""
        return (self.scores(images_BCHW) / self.temperature).softmax(dim=1)

    def scores(self, images_BCHW: Tensor) -> Tensor:
        """Scores (B, C), before temperature and softmax."""
        images_BCHW = checked_for(self.encoder, self, images_BCHW)
        scores_BC: Tensor = self.head(self.encoder(images_BCHW).to(self.head.weight.dtype))
        return scores_BC

    @torch.no_grad()
    def of_features(self, features_BD: Tensor) -> Tensor:
        """Probabilities (B, C) of features as the encoder gives them."""
        if features_BD.shape[1] != self.head.in_features:
            raise UserError(
                f"expected features of {self.head.in_features} dimensions, as the classifier "
                f"learned from, got {features_BD.shape[1]}"
            )
        return (self.head(features_BD) / self.temperature).softmax(dim=1)

    @entry()
    @torch.no_grad()
    def predict(self, images_BCHW: Tensor) -> Prediction:
        """Classes, probabilities and margins of images in [0, 1], best of side `size`."""
        return self.from_probabilities(self(images_BCHW))

    def from_probabilities(self, probability_BC: Tensor) -> Prediction:
        """Classes and margins of probabilities (B, C)."""
        if not bool(probability_BC.isfinite().all()):
            raise UserError(
                "the classifier gives probabilities that are not finite: look for NaN in the "
                "images, or in its weights"
            )
        top_B2, at_B2 = probability_BC.topk(2, dim=1)
        names = tuple(self.classes[at] for at in at_B2[:, 0].tolist())
        return Prediction(names, top_B2[:, 0], top_B2[:, 0] - top_B2[:, 1], probability_BC)


def save_classifier(classifier: Classifier, path: Path) -> None:
    """Write weights and everything that rebuilds the classifier into one safetensors file.

    Of a user's own module only the weights are written.
    """
    encoder = classifier.encoder
    described: dict[str, Any] = {}
    layers = None
    if isinstance(encoder, Depths):
        layers, encoder = encoder.layers[:-1], encoder.encoder
    if isinstance(encoder, Encoder):
        described = encoder.describe() | {"normalization": encoder.config.normalization._asdict()}
    described[NAME] = {
        "classes": classifier.classes,
        "size": classifier.size,
        "temperature": classifier.temperature,
        "about": classifier.about,
    }
    if layers is not None:
        described[NAME]["layers"] = list(layers)
    if classifier.reading is not None:
        described["reading"] = asdict(classifier.reading)
    # Copies, as a module may hold the same tensor twice.
    whole = classifier.state_dict()
    state = {name: each.clone() for name, each in whole.items() if isinstance(each, Tensor)}
    if len(state) < len(whole):
        _log.warning("%s lacks the encoder's extra state: load it into a module that has it", path)
    write_tensors(path, state, described)


@entry(draws=True)
def load_classifier(path: str | Path, encoder: nn.Module | None = None) -> Classifier:
    """Load a classifier that `mast fit` wrote.

    Args:
        path: The file, or a folder with one classifier in it, such as a run folder.
        encoder: The fitted module, if it is your own, as the file does not hold its code; a copy of
            it gets the weights in the file.

    Returns:
        The classifier in evaluation mode, on the CPU. It takes images (B, channels, H, W) in
        [0, 1] and gives probabilities (B, C); `predict` gives names, too.

    Raises:
        UserError: No such file, several in a folder, a damaged one, or one that `mast fit` did not
            write.
    """
    file = classifier_file(path)
    tensors, header = read_tensors(file, REMEDY)
    described = read_metadata(header)
    if NAME not in described:
        raise UserError(f"{file} was not written by `mast fit`: its header names no classifier")
    own = described[NAME]
    if encoder is None and "encoder" not in described:
        raise UserError(
            f"{file} holds no encoder, as it was learned from a module or from stored features: "
            "load it in Python with mast.load_classifier(path, encoder=...), or give `mast "
            "predict` the --features of new images"
        )
    try:
        layers, size = own.get("layers"), own["size"]
        prefix = "encoder." if layers is None else "encoder.encoder."
        weights = {name.replace("_orig_mod.", ""): of for name, of in tensors.items()}
        of_head = {name: weights.pop(f"head.{name}") for name in ("weight", "bias")}
        weights = {name.removeprefix(prefix): of for name, of in weights.items()}
        if encoder is None:
            of_model = {name.removeprefix("model."): of for name, of in weights.items()}
            module: nn.Module = described_encoder(described, of_model, file)
        else:
            module = copied(encoder)
            if weights:  # none where it learned from features
                load_whole(module, weights)
        if layers is not None:
            module = Depths(module, size, list(map(str, layers)))
        check_finite(file, of_head)
        outputs, dim = of_head["weight"].shape
        head = nn.Linear(dim, outputs)
        head.load_state_dict(of_head)
        if getattr(module, "dim", dim) != dim and isinstance(module, Encoder | Depths):
            raise UserError("its head does not fit its encoder")
        classes = argument(own["classes"], Sequence[str], "classes")
        classifier = Classifier(module, head, classes, size, own["temperature"], dict(own["about"]))
        if "reading" in described:
            classifier.reading = read_reading(described["reading"])
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        if str(error).startswith(str(file)):
            raise
        raise UserError(
            f"{file}: its header describes no classifier of this version: {error}"
        ) from error
    return classifier.cpu().eval()


def classifier_file(path: str | Path) -> Path:
    """The file of a classifier, from its path or that of a folder with one in it."""
    path = Path(path)
    if path.is_file():
        return path
    files = sorted(path.glob(f"{NAME}-*.safetensors"))
    if not files:
        raise UserError(f"no classifier at {path}: `mast fit` writes one")
    if len(files) > 1:
        commands = " or ".join(
            f"`mast predict FOLDER --classifier {quoted(file)}`" for file in files
        )
        raise UserError(f"expected one classifier in {path}, got {len(files)}: {commands}")
    return files[0]


def read_about(path: Path) -> dict[str, Any] | None:
    """What a file says about its classifier, unverified; None if it holds none."""
    try:
        own = read_metadata(read_header(path) or {}).get(NAME)
    except ValueError:
        return None
    about = own.get("about") if isinstance(own, dict) else None
    return about if isinstance(about, dict) else None
