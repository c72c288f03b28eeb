"""A folder of timm, its own configuration beside the weights, which transformers loads too."""

from pathlib import Path
from typing import Any, final

from torch import Tensor, nn

from mast.core.checkpoint import write_json
from mast.core.errors import UserError
from mast.data import crop_fraction
from mast.exports.format import ANY, Format, Place, transforms
from mast.exports.original import Original
from mast.exports.stock import scores_head, stock, write_weights
from mast.models import Encoder
from mast.models.encoders import arguments, stem_of


class _Folder(Format):
    """Whatever loads it, timm builds the model."""

    normalises = False

    def __init__(self, original: Original) -> None:
        self.original = original
        self.twin = _twin(original)

    def write(self, folder: Path) -> None:
        _write(self.original, self.twin, folder)

    def outputs(self, model: Any, images_BCHW: Tensor) -> Tensor:
        moments = (images_BCHW.new_tensor(model.pretrained_cfg[key]) for key in ("mean", "std"))
        mean, std = (moment.view(-1, 1, 1) for moment in moments)
        outputs_BC: Tensor = model((images_BCHW - mean) / std)
        return outputs_BC if self.original.classifier is None else outputs_BC.softmax(dim=1)

    def by_timm(self, place: Place) -> str:
        """Python that makes `model` of a folder or a repository, by timm."""
        source = "hf-hub" if place.on_hub else "local-dir"
        name = f"{source}:{place.name}"
        without_head = ", num_classes=0" if self.original.classifier is None else ""
        return f"model = timm.create_model({name!r}, pretrained=True{without_head}).eval()"

    def prepared(self, prepare: str) -> str:
        """Python that makes `prepare`, up to where the model is run."""
        if not self.original.of_photos:  # which alone a library's own transforms take
            prepare = transforms(self.original, normalise=True)
        return f"import torch\n{prepare}\nwith torch.inference_mode():\n"


@final
class Timm(_Folder):
    """`timm.create_model` of a folder, or of a repository on the Hub."""

    library = "timm"
    tags = ("timm",)
    modules = ("timm",)

    def load(self, place: Place) -> str:
        return self.by_timm(place)

    def example(self, place: Place) -> str:
        prepared = self.prepared(
            "\nsettings = timm.data.resolve_model_data_config(model)\n"
            "prepare = timm.data.create_transform(**settings, is_training=False)"
        )
        run = "model(torch.stack([prepare(image) for image in images]))"
        if self.original.classifier is None:
            return f"{prepared}    features = {run}"
        return (
            f"{prepared}    probabilities = {run}.softmax(dim=1)\n"
            'classes = model.pretrained_cfg["label_names"]\n'
            "names = [classes[at] for at in probabilities.argmax(dim=1)]"
        )


@final
class HuggingFace(_Folder):
    """transformers' `AutoModel`s and `AutoImageProcessor`, which hand the folder to timm.

    As transformers is no dependency, timm loads the folder before it is kept.
    """

    library = "transformers"
    tags = ("timm", "transformers")
    modules = ("transformers",)

    def load(self, place: Place) -> str:
        kind = (
            "AutoModel" if self.original.classifier is None else "AutoModelForImageClassification"
        )
        return f"model = transformers.{kind}.from_pretrained({place.name!r}).eval()"

    def tried(self, place: Place) -> str:
        return f"import timm; {self.by_timm(place)}"

    def example(self, place: Place) -> str:
        prepared = self.prepared(
            f"\nprepare = transformers.AutoImageProcessor.from_pretrained({place.name!r})"
        )
        run = "model(**prepare(images))"
        if not self.original.of_photos:
            run = "model(pixel_values=torch.stack([prepare(image) for image in images]))"
        if self.original.classifier is None:
            return f"{prepared}    features = {run}.pooler_output"
        return (
            f"{prepared}    probabilities = {run}.logits.softmax(dim=1)\n"
            "names = [model.config.id2label[at] for at in probabilities.argmax(dim=1).tolist()]"
        )


def _twin(original: Original) -> Encoder:
    """What is exported as timm builds it from a name and arguments.

    Returns:
        An encoder, whose model ends in the head of the classifier where there is one.

    Raises:
        UserError: timm does not.
    """
    encoder = original.encoder
    if stem_of(encoder).stem_stride is not None:
        raise UserError(
            f"timm builds no ResNet with a 3x3 stem and no max-pooling, as {encoder.config.name!r} "
            f"has for views of {encoder.size} pixels; the format torchvision replaces those "
            f"layers, and {ANY}"
        )
    twin = stock(encoder, "timm")
    if original.classifier is not None:
        head = scores_head(original.classifier)
        twin.model.reset_classifier(head.out_features)
        theirs = twin.model.get_classifier()
        if not isinstance(theirs, nn.Linear) or theirs.weight.shape != head.weight.shape:
            raise UserError(
                f"timm's {encoder.config.name!r} does not end in one linear layer on its features, "
                f"as the classifier does; {ANY}"
            )
        theirs.load_state_dict(head.state_dict())
        twin.eval()
    return twin


def _write(original: Original, twin: Encoder, folder: Path) -> None:
    """Write `config.json` and `model.safetensors`.

    The weights' own preprocessing is said as timm says it, and nothing of the weights that timm
    has for the architecture.
    """
    built = twin.model.pretrained_cfg
    classes = () if original.classifier is None else original.classifier.classes
    write_json(
        folder / "config.json",
        {
            "architecture": twin.config.name.removeprefix("timm:").partition(".")[0],
            "num_classes": len(classes),
            **({"label_names": classes} if classes else {}),
            "num_features": twin.dim,
            "model_args": arguments(twin),
            "pretrained_cfg": {
                "input_size": [twin.channels, original.size, original.size],
                "fixed_input_size": bool(built.get("fixed_input_size", False)),
                "interpolation": "bilinear",
                "crop_pct": crop_fraction(original.size),
                "crop_mode": "center",
                "mean": list(twin.config.normalization.mean),
                "std": list(twin.config.normalization.std),
                "num_classes": len(classes),
                "pool_size": None,
                # timm adapts weights of RGB to other channels, which these are of already.
                "first_conv": built.get("first_conv") if twin.channels == 3 else None,
                "classifier": built.get("classifier"),
            },
        },
    )
    write_weights(twin, folder)
