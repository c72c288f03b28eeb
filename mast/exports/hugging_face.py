"""A repository of the Hugging Face Hub, for transformers: the folder of timm, which it wraps."""

from pathlib import Path
from typing import Any

from torch import Tensor

from mast.exports.format import Format, Place
from mast.exports.timm_folder import features_by_timm, load_by_timm, timm_twin, write_timm
from mast.models import Encoder


class HuggingFace(Format):
    """`transformers.AutoModel` and `AutoImageProcessor`, which hand the folder to timm.

    As transformers is no dependency, timm loads the folder before it is kept.
    """

    library = "transformers"
    tags = ("timm", "transformers")
    modules = ("transformers",)
    normalises = False

    def __init__(self, encoder: Encoder) -> None:
        self.twin = timm_twin(encoder)

    def write(self, folder: Path) -> None:
        write_timm(self.twin, folder)

    def load(self, place: Place) -> str:
        return f"model = transformers.AutoModel.from_pretrained({place.name!r}).eval()"

    def tried(self, place: Place) -> str:
        return f"import timm; {load_by_timm(place)}"

    def features(self, model: Any, images_BCHW: Tensor) -> Tensor:
        return features_by_timm(model, images_BCHW)

    def example(self, place: Place) -> str:
        return (
            "import torch\n\n"
            f"prepare = transformers.AutoImageProcessor.from_pretrained({place.name!r})\n"
            "with torch.inference_mode():\n"
            "    features = model(**prepare(images)).pooler_output"
        )
