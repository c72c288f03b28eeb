"""A state dict of torchvision, and the line that builds the model around it."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mast.exports.format import Format, Place, transforms
from mast.exports.stock import stock
from mast.exports.weights import WEIGHTS, write_weights
from mast.models import Encoder
from mast.models.encoders import HEADS, arguments, stem_of


class Torchvision(Format):
    """A model by name, with the layers replaced that a small stem and no classifier replace."""

    tags = ("torchvision",)
    modules = ("safetensors.torch", "torch", "torchvision")
    normalises = False

    def __init__(self, encoder: Encoder) -> None:
        self.twin = stock(encoder, "torchvision")

    def write(self, folder: Path) -> None:
        write_weights(self.twin, folder)

    def load(self, place: Place) -> str:
        name = self.twin.config.name.removeprefix("torchvision:")
        given = "".join(f", {key}={value!r}" for key, value in arguments(self.twin).items())
        replaced = [f"model.{layer} = {python}" for layer, python in self._replaced().items()]
        return "; ".join(
            [
                f"model = torchvision.models.get_model({name!r}{given})",
                *replaced,
                f"model.load_state_dict(safetensors.torch.load_file({place.file(WEIGHTS)}))",
                "model.eval()",
            ]
        )

    def features(self, model: Any, images_BCHW: Tensor) -> Tensor:
        features_BC: Tensor = model((images_BCHW - self.twin.mean) / self.twin.std)
        return features_BC

    def example(self, place: Place) -> str:
        return (
            f"{transforms(self.twin, normalise=True)}\n"
            "with torch.inference_mode():\n"
            "    features = model(torch.stack([prepare(image) for image in images]))"
        )

    def _replaced(self) -> dict[str, str]:
        """Python for the layers that are not the library's own, by name."""
        model, layers = self.twin.model, {}
        stride = stem_of(self.twin).stem_stride
        if stride is not None:
            channels = model.conv1.out_channels
            layers["conv1"] = (
                f"torch.nn.Conv2d(3, {channels}, 3, stride={stride}, padding=1, bias=False)"
            )
            layers["maxpool"] = "torch.nn.Identity()"
        for head in HEADS:
            if isinstance(getattr(model, head, None), nn.Identity):
                layers[head] = "torch.nn.Identity()"
        return layers
