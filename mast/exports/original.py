"""The encoder or classifier to export."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast, final

from torch import Tensor, nn

from mast.core.reading import Layout, Reading
from mast.core.run import RunFolder
from mast.encoders.fingerprint import fingerprint
from mast.encoders.frozen import InSpace
from mast.models import Classifier, Encoder, load_classifier, load_encoder
from mast.models.classifier import read_about
from mast.models.depths import Depths

Kind = Literal["encoder", "classifier"]
OUTPUTS: dict[Kind, str] = {"encoder": "features", "classifier": "probabilities"}
TINY = 1e-30  # some runtimes round smaller probabilities to 0


@final
@dataclass(frozen=True)
class Original:
    """The model to export and compare with, in evaluation mode, on the CPU."""

    encoder: Encoder  # from images (B, channels, H, W) in [0, 1] to features (B, D)
    classifier: Classifier | None = None  # contains the encoder
    space: InSpace | None = None  # the encoder followed by the map of the chosen invariances
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)  # "ignored", "matched", …

    @property
    def module(self) -> nn.Module:
        """The exported computation: images to features (B, D) or probabilities (B, C)."""
        return self.space or self.classifier or self.encoder

    @property
    def reads_more(self) -> bool:
        """Whether it reads more than the encoder's last features."""
        classifier = self.classifier
        return self.space is not None or bool(classifier and classifier.encoder is not self.encoder)

    @property
    def kind(self) -> Kind:
        """ "encoder" or "classifier", also the name of its file."""
        return "encoder" if self.classifier is None else "classifier"

    @property
    def output(self) -> str:
        """ "features" or "probabilities"."""
        return OUTPUTS[self.kind]

    @property
    def size(self) -> int:
        """Side of the views in pixels."""
        if self.space is not None:
            return cast(Depths, self.space.encoder).size
        return (self.classifier or self.encoder).size

    @property
    def reading(self) -> Reading:
        """How file values become images; 8-bit RGB if unknown."""
        known = (self.classifier or self.encoder).reading
        return known or Reading(Layout(self.encoder.channels))

    @property
    def of_photos(self) -> bool:
        """Whether it takes 8-bit RGB images."""
        return self.reading == Reading()

    @property
    def name(self) -> str:
        """Name of the encoder's architecture."""
        return self.encoder.config.name

    def fingerprint(self) -> str:
        """Hash of everything that affects the outputs."""
        described = self.encoder.describe()
        if self.space is not None:
            layers = cast(Depths, self.space.encoder).layers
            described |= {"layers": list(layers), "space": dict(self.chosen)}
            return fingerprint(self.space, described)
        if self.classifier is None:
            return fingerprint(self.encoder, described)
        parts = {
            "classes": self.classifier.classes,
            "size": self.classifier.size,
            "temperature": self.classifier.temperature,
            **({"layers": self.classifier.encoder.layers} if self.reads_more else {}),
        }
        return fingerprint(self.classifier, {**described, "classifier": parts})

    def pretrained_in(self, run: RunFolder) -> bool:
        """Whether the encoder (for a classifier, the one it was trained on) is that of the run."""
        if self.classifier is None:
            return True
        if not run.encoder.is_file():
            return False
        encoder = load_encoder(run.encoder)
        if fingerprint(encoder, None) == fingerprint(self.encoder, None):
            return True
        start = self.classifier.about.get("encoder")  # before it was fine-tuned
        known = start.get("fingerprint") if isinstance(start, dict) else None
        return bool(fingerprint(encoder, encoder.describe()) == known)

    def compared(self, outputs_BC: Tensor) -> Tensor:
        """Values to compare: features, or the logarithms of probabilities.

        A classifier may be certain of one class for all test images; then only logarithms
        reveal wrong scores.
        """
        return outputs_BC if self.classifier is None else outputs_BC.clamp(min=TINY).log()


def load_original(path: str | Path) -> Original:
    """Load the encoder of a run folder, an encoder's file, or a classifier's file."""
    path = Path(path)
    if path.is_file() and read_about(path) is not None:
        classifier = load_classifier(path)
        encoder = classifier.encoder
        if isinstance(encoder, Depths):
            encoder = encoder.encoder
        assert isinstance(encoder, Encoder)
        return Original(encoder, classifier)
    return Original(load_encoder(path))
