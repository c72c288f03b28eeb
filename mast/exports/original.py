"""What is exported: an encoder, or a classifier and the encoder that it is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast, final

from torch import Tensor, nn

from mast.core.reading import Layout, Reading
from mast.core.run import RunFolder
from mast.encoders.fingerprint import fingerprint
from mast.encoders.frozen import InSpace
from mast.models import (
    Classifier,
    Depths,
    Encoder,
    load_classifier,
    load_encoder,
    read_about,
)

Kind = Literal["encoder", "classifier"]
OUTPUTS: dict[Kind, str] = {"encoder": "features", "classifier": "probabilities"}
TINY = 1e-30  # below are probabilities of which some runtimes make 0


@final
@dataclass(frozen=True)
class Original:
    """What an export is written from and compared with, in evaluation mode, on the CPU."""

    encoder: Encoder  # from images (B, channels, H, W) in [0, 1] to features (B, D)
    classifier: Classifier | None = None  # of which the encoder is a part
    space: InSpace | None = None  # the encoder with the space in which its features are seen
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)  # "ignored", "matched", …

    @property
    def module(self) -> nn.Module:
        """From images to what an export gives: features (B, D) or probabilities (B, C)."""
        return self.space or self.classifier or self.encoder

    @property
    def reads_more(self) -> bool:
        """Whether it reads more than the encoder's features."""
        classifier = self.classifier
        return self.space is not None or bool(classifier and classifier.encoder is not self.encoder)

    @property
    def kind(self) -> Kind:
        """What it is; its file in a folder is called so."""
        return "encoder" if self.classifier is None else "classifier"

    @property
    def output(self) -> str:
        """What comes of images."""
        return OUTPUTS[self.kind]

    @property
    def size(self) -> int:
        """Side of the views in pixels."""
        if self.space is not None:
            return cast(Depths, self.space.encoder).size
        return (self.classifier or self.encoder).size

    @property
    def reading(self) -> Reading:
        """How the values of files become images; where nothing is known, as 8 bits do."""
        known = (self.classifier or self.encoder).reading
        return known or Reading(Layout(self.encoder.channels))

    @property
    def of_photos(self) -> bool:
        """Whether it takes what Pillow opens as RGB."""
        return self.reading == Reading()

    @property
    def name(self) -> str:
        """What the encoder's architecture is called."""
        return self.encoder.config.name

    def fingerprint(self) -> str:
        """Hash of everything that its outputs depend on."""
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
        """Whether the encoder, or the one that a classifier learned on, is that of a run."""
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
        """What outputs are compared in: features as they are, of probabilities the logarithms.

        A classifier may take the images of a comparison for one class for sure; only the
        logarithms then say whether all scores are right.
        """
        return outputs_BC if self.classifier is None else outputs_BC.clamp(min=TINY).log()


def load_original(path: str | Path) -> Original:
    """Load a run folder, which stands for its encoder, an encoder's file, or a classifier's."""
    path = Path(path)
    if path.is_file() and read_about(path) is not None:
        classifier = load_classifier(path)
        encoder = classifier.encoder
        if isinstance(encoder, Depths):
            encoder = encoder.encoder
        assert isinstance(encoder, Encoder)
        return Original(encoder, classifier)
    return Original(load_encoder(path))
