"""A repository of the Hugging Face Hub, for transformers: the folder of timm, which it wraps."""

from pathlib import Path
from typing import Any

from torch import Tensor

from mast.exports.format import Format, Place, transforms
from mast.exports.original import Original
from mast.exports.timm_folder import load_by_timm, outputs_by_timm, timm_twin, write_timm


class HuggingFace(Format):
    """transformers' `AutoModel`s and `AutoImageProcessor`, which hand the folder to timm.

    As transformers is no dependency, timm loads the folder before it is kept.
    """

    library = "transformers"
    tags = ("timm", "transformers")
    modules = ("transformers",)
    normalises = False

    def __init__(self, original: Original) -> None:
        self.original = original
        self.twin = timm_twin(original)

    def write(self, folder: Path) -> None:
        write_timm(self.original, self.twin, folder)

    def load(self, place: Place) -> str:
        kind = (
            "AutoModel" if self.original.classifier is None else "AutoModelForImageClassification"
        )
        return f"model = transformers.{kind}.from_pretrained({place.name!r}).eval()"

    def tried(self, place: Place) -> str:
        return f"import timm; {load_by_timm(self.original, place)}"

    def outputs(self, model: Any, images_BCHW: Tensor) -> Tensor:
        return outputs_by_timm(self.original, model, images_BCHW)

    def example(self, place: Place) -> str:
        prepared = f"\nprepare = transformers.AutoImageProcessor.from_pretrained({place.name!r})\n"
        run = "model(**prepare(images))"
        if not self.original.of_photos:  # which alone timm's transforms behind it take
            prepared = f"{transforms(self.original, normalise=True)}\n"
            run = "model(pixel_values=torch.stack([prepare(image) for image in images]))"
        prepared = f"import torch\n{prepared}with torch.inference_mode():\n"
        if self.original.classifier is None:
            return f"{prepared}    features = {run}.pooler_output"
        return (
            f"{prepared}    probabilities = {run}.logits.softmax(dim=1)\n"
            "names = [model.config.id2label[at] for at in probabilities.argmax(dim=1).tolist()]"
        )
