"""Formats of libraries that build the model by themselves, from its name, with our weights.

timm's folder has its configuration beside the weights, and transformers loads it too.
torchvision's has a state dict, and its line replaces the layers that differ.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mast.core.checkpoint import write_json
from mast.core.errors import UserError
from mast.core.tensors import write_tensors
from mast.data import crop_fraction
from mast.exports.format import (
    ANY,
    EXACT,
    Format,
    Place,
    alike,
    preparing,
    read_classes,
    write_classes,
)
from mast.exports.original import Original
from mast.models import Classifier, Encoder
from mast.models.encoders import HEADS, ZERO_INIT, arguments, first_convolution, stem_of

WEIGHTS = "model.safetensors"
RUN = "model(torch.stack([prepare(image) for image in images]))"


class _Folder(Format):
    """Whatever loads it, timm builds the model."""

    normalises = False

    def __init__(self, original: Original) -> None:
        self.original = original
        encoder = original.encoder
        if stem_of(encoder).stem_stride is not None:
            raise UserError(
                "timm builds no ResNet with a 3x3 stem and no max-pooling, as "
                f"{encoder.config.name!r} has for views of {encoder.size} pixels; the format "
                f"torchvision replaces those layers, and {ANY}"
            )
        self.twin = stock(encoder, "timm")
        if original.classifier is not None:
            head = scores_head(original.classifier)
            self.twin.model.reset_classifier(head.out_features)
            theirs = self.twin.model.get_classifier()
            if not isinstance(theirs, nn.Linear) or theirs.weight.shape != head.weight.shape:
                raise UserError(
                    f"timm's {encoder.config.name!r} does not end in one linear layer on its "
                    f"features, as the classifier does; {ANY}"
                )
            theirs.load_state_dict(head.state_dict())
            self.twin.eval()

    def write(self, folder: Path) -> None:
        """`config.json` and `model.safetensors`.

        The configuration has the weights' own preprocessing, and nothing of the weights that timm
        has for the architecture.
        """
        twin, classifier = self.twin, self.original.classifier
        built = twin.model.pretrained_cfg
        classes = () if classifier is None else classifier.classes
        preprocessing = {
            "input_size": [twin.channels, self.original.size, self.original.size],
            "fixed_input_size": bool(built.get("fixed_input_size", False)),
            "interpolation": "bilinear",
            "crop_pct": crop_fraction(self.original.size),
            "crop_mode": "center",
            "mean": list(twin.config.normalization.mean),
            "std": list(twin.config.normalization.std),
            "num_classes": len(classes),
            "pool_size": None,
            # timm adapts weights of RGB to other channels, which these are of already.
            "first_conv": built.get("first_conv") if twin.channels == 3 else None,
            "classifier": built.get("classifier"),
        }
        config = {
            "architecture": twin.config.name.removeprefix("timm:").partition(".")[0],
            "num_classes": len(classes),
            **({"label_names": classes} if classes else {}),
            "num_features": twin.dim,
            "model_args": arguments(twin),
            "pretrained_cfg": preprocessing,
        }
        write_json(folder / "config.json", config)
        write_weights(twin, folder)

    def outputs(self, model: Any, images_BCHW: Tensor) -> Tensor:
        moments = (images_BCHW.new_tensor(model.pretrained_cfg[key]) for key in ("mean", "std"))
        mean, std = (moment.view(-1, 1, 1) for moment in moments)
        outputs_BC: Tensor = model((images_BCHW - mean) / std)
        return outputs_BC if self.original.classifier is None else outputs_BC.softmax(dim=1)

    def by_timm(self, place: Place) -> str:
        """Python that makes `model` of a folder or a repository, by timm."""
        name = f"{'hf-hub' if place.on_hub else 'local-dir'}:{place.name}"
        without_head = ", num_classes=0" if self.original.classifier is None else ""
        return f"model = timm.create_model({name!r}, pretrained=True{without_head}).eval()"

    def prepared(self, prepare: str) -> str:
        """Python that makes `prepare`, up to where the model is run."""
        if not self.original.of_photos:  # which alone a library's own transforms take
            prepare = preparing(self.original, normalise=True, tensors=True)
        return f"import torch\n{prepare}\nwith torch.inference_mode():\n"


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
        if self.original.classifier is None:
            return f"{prepared}    features = {RUN}"
        return (
            f"{prepared}    probabilities = {RUN}.softmax(dim=1)\n"
            'classes = model.pretrained_cfg["label_names"]\n'
            "names = [classes[at] for at in probabilities.argmax(dim=1)]"
        )


class HuggingFace(_Folder):
    """transformers' `AutoModel`s and `AutoImageProcessor`, which hand the folder to timm.

    As transformers is no dependency, timm loads the folder before it is kept.
    """

    library = "transformers"
    tags = ("timm", "transformers")
    modules = ("transformers",)

    def load(self, place: Place) -> str:
        classifies = "" if self.original.classifier is None else "ForImageClassification"
        name = f"transformers.AutoModel{classifies}"
        return f"model = {name}.from_pretrained({place.name!r}).eval()"

    def tried(self, place: Place) -> str:
        return f"import timm; {self.by_timm(place)}"

    def example(self, place: Place) -> str:
        prepared = self.prepared(
            f"\nprepare = transformers.AutoImageProcessor.from_pretrained({place.name!r})"
        )
        run = "model(**prepare(images))"
        if not self.original.of_photos:
            run = RUN.replace("model(", "model(pixel_values=")
        if self.original.classifier is None:
            return f"{prepared}    features = {run}.pooler_output"
        return (
            f"{prepared}    probabilities = {run}.logits.softmax(dim=1)\n"
            "names = [model.config.id2label[at] for at in probabilities.argmax(dim=1).tolist()]"
        )


class Torchvision(Format):
    """A model by name, with the layers replaced that a small stem and another head replace."""

    tags = ("torchvision",)
    modules = ("safetensors.torch", "torch", "torchvision")
    normalises = False

    def __init__(self, original: Original) -> None:
        self.original = original
        self.twin = stock(original.encoder, "torchvision")
        self.heads = [
            name for name in HEADS if isinstance(getattr(self.twin.model, name, None), nn.Identity)
        ]
        if original.classifier is not None:
            (place,) = self.heads
            setattr(self.twin.model, place, scores_head(original.classifier))

    def write(self, folder: Path) -> None:
        write_weights(self.twin, folder)
        write_classes(self.original, folder, normalised=False)

    def outputs(self, model: Any, images_BCHW: Tensor) -> Tensor:
        outputs_BC: Tensor = model((images_BCHW - self.twin.mean) / self.twin.std)
        return outputs_BC if self.original.classifier is None else outputs_BC.softmax(dim=1)

    def load(self, place: Place) -> str:
        name = self.twin.config.name.removeprefix("torchvision:")
        options = "".join(f", {key}={value!r}" for key, value in arguments(self.twin).items())
        replaced = [
            f"model.set_submodule({layer!r}, {python})"
            if "." in layer
            else f"model.{layer} = {python}"
            for layer, python in self._replaced().items()
        ]
        return "; ".join(
            [
                f"model = torchvision.models.get_model({name!r}{options})",
                *replaced,
                f"model.load_state_dict(safetensors.torch.load_file({place.file(WEIGHTS)}))",
                "model.eval()",
            ]
        )

    def example(self, place: Place) -> str:
        prepare = preparing(self.original, normalise=True, tensors=True)
        if self.original.classifier is None:
            return f"{prepare}\nwith torch.inference_mode():\n    features = {RUN}"
        return (
            f"import json\n\n{prepare}\n{read_classes(place)}\nwith torch.inference_mode():\n"
            f"    probabilities = {RUN}.softmax(dim=1)\n"
            "names = [classes[at] for at in probabilities.argmax(dim=1)]"
        )

    def _replaced(self) -> dict[str, str]:
        """Python for the layers that are not the library's own, by name."""
        model, layers = self.twin.model, {}
        stride = stem_of(self.twin).stem_stride
        name, first = first_convolution(model)
        if stride is not None or self.twin.channels != 3:
            layers[name] = f"torch.nn.{first}"
        if stride is not None:
            layers["maxpool"] = "torch.nn.Identity()"
        for name in self.heads:
            head = getattr(model, name)
            layers[name] = (
                f"torch.nn.Linear({head.in_features}, {head.out_features})"
                if isinstance(head, nn.Linear)
                else "torch.nn.Identity()"
            )
        return layers


def stock(encoder: Encoder, library: Literal["timm", "torchvision"]) -> Encoder:
    """The same architecture by a library, with an encoder's weights.

    The library need not be the one that built the encoder. The returned encoder's model, called by
    itself, gives the same features.

    Raises:
        UserError: The library has no such model, or one that gives something else.
    """
    options = encoder.config.options
    if library != encoder.library:
        # How weights start does not matter once they are loaded.
        options = {key: value for key, value in options.items() if key != ZERO_INIT}
    name = encoder.config.name.rpartition(":")[2]
    config = replace(encoder.config, name=f"{library}:{name}", options=options)
    try:
        twin = Encoder(config, encoder.size).eval()
        twin.model.load_state_dict(encoder.model.state_dict())
    except (UserError, RuntimeError) as error:
        raise UserError(
            f"{library} has no model with the weights of {encoder.config.name!r}; {ANY}"
        ) from error
    twin.reading = encoder.reading
    shape = (2, encoder.channels, encoder.size, encoder.size)
    images_BCHW = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        ours_BC = encoder(images_BCHW)
        theirs = twin.model((images_BCHW - encoder.mean) / encoder.std)
    if theirs.shape != ours_BC.shape or not alike(ours_BC, theirs, EXACT):
        raise UserError(
            f"the model that {library} calls {name!r} gives other features than the encoder, "
            f"whose last feature map is averaged; {ANY}"
        )
    return twin


def scores_head(classifier: Classifier) -> nn.Linear:
    """The head of a classifier with its temperature inside: softmax makes them probabilities."""
    with torch.no_grad():
        weight_CD = classifier.head.weight / classifier.temperature
        bias_C = classifier.head.bias / classifier.temperature
    head = nn.Linear(weight_CD.shape[1], weight_CD.shape[0])
    head.load_state_dict({"weight": weight_CD, "bias": bias_C})
    return head


def write_weights(encoder: Encoder, folder: Path) -> None:
    """Write `model.safetensors`, which `mast evaluate` reads with all that it says."""
    config, (kind, stride) = encoder.config, stem_of(encoder)
    stem = {"stem": kind, "stride": stride, "padding": config.stem_padding, "size": encoder.size}
    header = {
        "format": "pt",  # transformers asks for it
        "architecture": config.name,
        "options": json.dumps(config.options),
        "stem": json.dumps(stem),
        **{key: json.dumps(values) for key, values in config.normalization._asdict().items()},
    }
    if encoder.reading is not None:
        header["reading"] = json.dumps(asdict(encoder.reading))
    write_tensors(folder / WEIGHTS, encoder.model.state_dict(), header=header)
