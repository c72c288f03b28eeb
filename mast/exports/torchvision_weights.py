"""A state dict of torchvision, and the line that builds the model around it."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mast.exports.format import Format, Place, read_classes, transforms, write_classes
from mast.exports.original import Original
from mast.exports.stock import WEIGHTS, scores_head, stock, write_weights
from mast.models.encoders import HEADS, arguments, first_convolution, stem_of


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

    def load(self, place: Place) -> str:
        name = self.twin.config.name.removeprefix("torchvision:")
        given = "".join(f", {key}={value!r}" for key, value in arguments(self.twin).items())
        replaced = [
            f"model.set_submodule({layer!r}, {python})"
            if "." in layer
            else f"model.{layer} = {python}"
            for layer, python in self._replaced().items()
        ]
        return "; ".join(
            [
                f"model = torchvision.models.get_model({name!r}{given})",
                *replaced,
                f"model.load_state_dict(safetensors.torch.load_file({place.file(WEIGHTS)}))",
                "model.eval()",
            ]
        )

    def outputs(self, model: Any, images_BCHW: Tensor) -> Tensor:
        outputs_BC: Tensor = model((images_BCHW - self.twin.mean) / self.twin.std)
        return outputs_BC if self.original.classifier is None else outputs_BC.softmax(dim=1)

    def example(self, place: Place) -> str:
        run = "model(torch.stack([prepare(image) for image in images]))"
        prepare = transforms(self.original, normalise=True)
        if self.original.classifier is None:
            return f"{prepare}\nwith torch.inference_mode():\n    features = {run}"
        return (
            f"import json\n\n{prepare}\n{read_classes(place)}\nwith torch.inference_mode():\n"
            f"    probabilities = {run}.softmax(dim=1)\n"
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
