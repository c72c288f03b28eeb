"""The timm format: timm builds the model by name and loads our weights.

The folder has a configuration next to the weights, and transformers loads it, too.
"""

from dataclasses import replace
from pathlib import Path

from torch import nn

from mast.core.checkpoint import write_json
from mast.core.errors import UserError
from mast.core.tensors import write_tensors
from mast.data.decode import crop_fraction
from mast.exports.format import ANY, Format
from mast.exports.original import Original
from mast.models import Classifier, Encoder
from mast.models.encoders import HEAD, ZERO_INIT, arguments, stem_stride

WEIGHTS = "model.safetensors"


class Timm(Format):
    """`timm.create_model` of a folder; transformers' AutoModels hand it to timm."""

    library = "timm"
    tags = ("timm", "transformers")
    modules = ("timm",)
    normalises = False

    def __init__(self, original: Original) -> None:
        self.original = original
        encoder = original.encoder
        if stem_stride(encoder.model, encoder.config, encoder.size) is not None:
            raise UserError(
                "format: timm cannot build the small stem that "
                f"{encoder.config.name!r} has for views of {encoder.size} pixels; {ANY}"
            )
        self.twin = stock(encoder)
        if original.classifier is not None:
            head = scores_head(original.classifier)
            self.twin.model.reset_classifier(head.out_features)
            theirs = self.twin.model.get_classifier()
            if not isinstance(theirs, nn.Linear) or theirs.weight.shape != head.weight.shape:
                raise UserError(
                    f"format: timm's {encoder.config.name!r} does not end in one linear layer, as "
                    f"this classifier does; {ANY}"
                )
            theirs.load_state_dict(head.state_dict())

    def write(self, folder: Path) -> None:
        """`config.json`, with the weights' own preprocessing, and `model.safetensors`."""
        twin, classifier = self.twin, self.original.classifier
        built = twin.model.pretrained_cfg
        classes = () if classifier is None else classifier.classes
        mean, std = map(list, twin.config.normalization)
        preprocessing = {
            "input_size": [twin.channels, self.original.size, self.original.size],
            "fixed_input_size": bool(built.get("fixed_input_size", False)),
            "interpolation": "bilinear",
            "crop_pct": crop_fraction(self.original.size),
            "crop_mode": "center",
            "mean": mean,
            "std": std,
            "num_classes": len(classes),
            "pool_size": None,
            # Keeps timm from adapting the weights to the channels, as they already fit.
            "first_conv": built.get("first_conv") if twin.channels == 3 else None,
            "classifier": built.get("classifier"),
        }
        config = {
            "architecture": twin.config.name.removeprefix("timm:").partition(".")[0],
            "num_classes": len(classes),
            **({"label_names": classes} if classes else {}),
            "num_features": twin.dim,
            "model_args": arguments(twin.config, twin.size),
            "pretrained_cfg": preprocessing,
        }
        write_json(folder / "config.json", config)
        state = twin.model.state_dict()
        head = sorted(state.keys() - self.original.encoder.model.state_dict().keys())
        # `mast evaluate` reads the metadata.
        write_tensors(folder / WEIGHTS, state, {**twin.describe(), HEAD: head}, {"format": "pt"})

    def load(self, folder: str) -> str:
        name = f"local-dir:{folder}"
        without_head = ", num_classes=0" if self.original.classifier is None else ""
        return f"model = timm.create_model({name!r}, pretrained=True{without_head}).eval()"


def stock(encoder: Encoder) -> Encoder:
    """The same architecture built by timm, with the encoder's weights.

    Raises:
        UserError: timm has no such model.
    """
    config = encoder.config
    name = f"timm:{config.name.rpartition(':')[2]}"
    # Initialization does not matter, as weights are loaded afterwards.
    options = {key: value for key, value in config.options.items() if key != ZERO_INIT}
    try:
        twin = Encoder(replace(config, name=name, options=options), encoder.size).eval()
        twin.model.load_state_dict(encoder.model.state_dict())
    except (UserError, RuntimeError) as error:
        raise UserError(f"format: timm has no such model as {config.name!r}; {ANY}") from error
    twin.reading = encoder.reading
    return twin


def scores_head(classifier: Classifier) -> nn.Linear:
    """A classifier's head divided by its temperature: softmax gives calibrated probabilities."""
    head = nn.Linear(classifier.head.in_features, classifier.head.out_features)
    scaled = {
        key: value / classifier.temperature for key, value in classifier.head.state_dict().items()
    }
    head.load_state_dict(scaled)
    return head
