"""A folder of timm: its own configuration beside the weights."""

from pathlib import Path
from typing import Any

from torch import Tensor

from mast.core.checkpoint import write_json
from mast.core.errors import UserError
from mast.exports.format import ANY, Format, Place
from mast.exports.stock import stock
from mast.exports.weights import write_weights
from mast.measure.features import crop_fraction
from mast.models import Encoder
from mast.models.encoders import arguments, stem_of


class Timm(Format):
    """`timm.create_model` of a folder, or of a repository on the Hub."""

    library = "timm"
    tags = ("timm",)
    modules = ("timm",)
    normalises = False

    def __init__(self, encoder: Encoder) -> None:
        self.twin = timm_twin(encoder)

    def write(self, folder: Path) -> None:
        write_timm(self.twin, folder)

    def load(self, place: Place) -> str:
        return load_by_timm(place)

    def features(self, model: Any, images_BCHW: Tensor) -> Tensor:
        return features_by_timm(model, images_BCHW)

    def example(self, place: Place) -> str:
        return (
            "import torch\n\n"
            "settings = timm.data.resolve_model_data_config(model)\n"
            "prepare = timm.data.create_transform(**settings, is_training=False)\n"
            "with torch.inference_mode():\n"
            "    features = model(torch.stack([prepare(image) for image in images]))"
        )


# What transformers loads is the same folder: `hugging_face.py`.


def timm_twin(encoder: Encoder) -> Encoder:
    """The encoder as timm builds it from a name and arguments.

    Raises:
        UserError: timm does not.
    """
    if stem_of(encoder).stem_stride is not None:
        raise UserError(
            f"timm builds no ResNet with a 3x3 stem and no max-pooling, as {encoder.config.name!r} "
            f"has for views of {encoder.size} pixels; the format torchvision replaces those "
            f"layers, and {ANY}"
        )
    return stock(encoder, "timm")


def write_timm(twin: Encoder, folder: Path) -> None:
    """Write `config.json` and `model.safetensors`.

    The weights' own preprocessing is said as timm says it, and nothing of the weights that timm
    has for the architecture.
    """
    built = twin.model.pretrained_cfg
    write_json(
        folder / "config.json",
        {
            "architecture": twin.config.name.removeprefix("timm:").partition(".")[0],
            "num_classes": 0,
            "num_features": twin.dim,
            "model_args": arguments(twin),
            "pretrained_cfg": {
                "input_size": [3, twin.size, twin.size],
                "fixed_input_size": bool(built.get("fixed_input_size", False)),
                "interpolation": "bilinear",
                "crop_pct": crop_fraction(twin.size),
                "crop_mode": "center",
                "mean": list(twin.config.normalization.mean),
                "std": list(twin.config.normalization.std),
                "num_classes": 0,
                "pool_size": None,
                "first_conv": built.get("first_conv"),
                "classifier": built.get("classifier"),
            },
        },
    )
    write_weights(twin, folder)


def load_by_timm(place: Place) -> str:
    """Python that makes `model` of a folder or a repository."""
    source = "hf-hub" if place.on_hub else "local-dir"
    name = f"{source}:{place.name}"
    return f"model = timm.create_model({name!r}, pretrained=True, num_classes=0).eval()"


def features_by_timm(model: Any, images_BCHW: Tensor) -> Tensor:
    """Features of images in [0, 1], normalised as the folder's configuration says."""
    moments = (images_BCHW.new_tensor(model.pretrained_cfg[key]) for key in ("mean", "std"))
    mean, std = (moment.view(3, 1, 1) for moment in moments)
    features_BC: Tensor = model((images_BCHW - mean) / std)
    return features_BC
