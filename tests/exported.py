"""Encoders to export, and the process without `mast` that loads what was written."""

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.functional import to_tensor

from mast.exports import FORMATS
from mast.exports.folder import Exported
from mast.models import EncoderConfig
from mast.models.encoders import Normalization

NARROW = EncoderConfig("timm:resnet18", {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]})
HALF = Normalization((0.5, 0.4, 0.3), (0.5, 0.25, 0.2))
INSTALLED = [name for name in FORMATS if name != "onnx" or find_spec("onnxruntime")]

# The first block of each README.md in its folder, and then the printed line before the second.
FRESH = r"""
import sys
import json, os, re
places, missing = json.loads(sys.argv[1])
sys.modules |= dict.fromkeys(missing)  # not even where they are installed
from pathlib import Path
import numpy
from PIL import Image
for folder, line, pictures, output in places:
    os.chdir(folder)
    images = [
        numpy.load(picture) if picture.endswith(".npy") else Image.open(picture).convert("RGB")
        for picture in pictures
    ]
    load, use = re.findall(r"```python\n(.*?)```", Path("README.md").read_text(), re.DOTALL)
    exec(load, {})
    for count in (len(images), 1):
        names = {"images": images[:count]}
        exec(line, names)
        exec(use, names)
        assert not {*missing} & {name for name, of in sys.modules.items() if of}
        numpy.save(f"{folder}-{count}.npy", numpy.asarray(names[output]))
        Path(f"{folder}-{count}.json").write_text(json.dumps(names.get("names")))
"""


class Case(NamedTuple):
    """An export, and the module that it was written from, with two images to compare them by."""

    exported: Exported
    module: nn.Module
    pictures: list[str]

    def theirs(self, count: int) -> Tensor:
        """What a process without `mast` gave for so many of the images."""
        return torch.from_numpy(np.load(f"{self.exported.folder}-{count}.npy"))

    def named(self, count: int) -> list[str]:
        """Which classes it named."""
        file = Path(f"{self.exported.folder}-{count}.json")
        return list(json.loads(file.read_text()))


def outputs(module: nn.Module, pictures: Sequence[str]) -> Tensor:
    """What a module gives of images that have its size."""
    images = [to_tensor(Image.open(picture)) for picture in pictures]
    with torch.inference_mode():
        outputs_BC: Tensor = module(torch.stack(images))
    return outputs_BC


def load_in_a_fresh_process(
    cases: Sequence[Case], output: str, folder: Path, *missing: str
) -> None:
    """By what is printed and what `README.md` says, without `mast` and modules that are missing."""
    places = [
        (str(case.exported.folder), case.exported.line, case.pictures, output) for case in cases
    ]
    words = [sys.executable, "-P", "-c", FRESH, json.dumps([places, ["mast", *missing]])]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def pictures_of(folder: Path, size: int) -> list[str]:
    """Of that size, so that nothing is resized, and smooth: networks see little in noise."""
    folder.mkdir(exist_ok=True)
    generator = np.random.default_rng(0)
    for at in range(2):
        pixels = generator.integers(0, 256, (4, 4, 3)).astype(np.uint8)
        Image.fromarray(pixels).resize((size, size)).save(folder / f"{at}.png")
    return [str(file) for file in sorted(folder.iterdir())]
