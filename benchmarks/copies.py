"""How many planted copies are found, by what was done to them.

    python benchmarks/copies.py RUN --data flowers17/train [--images 200]

So many images are drawn and copied in several ways into a set of all images, one way at a time;
`mast.measure.duplicates` groups the set by the features of the run's encoder, and by those of the
same encoder before its training. A copy is found where it is in one group with its original.
A few minutes on one core.
"""

import argparse
import tempfile
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS
from PIL import Image, ImageEnhance

from mast.config import configuration_of
from mast.core.checkpoint import write_json
from mast.core.run import RunFolder, provenance
from mast.data import CanvasSet, DataConfig, open_canvas, open_source
from mast.data.pixels import InMemory
from mast.measure.duplicates import copies_within
from mast.measure.features import extract
from mast.models import Encoder, load_encoder
from mast.runs.start import load_untrained

Change = Callable[[Image.Image, Path], object]
ABOVE = (0.99, 0.98, 0.95)  # cosines


def _cropped(share: float) -> Change:
    """Without a share of the sides, the same on all four edges."""

    def change(image: Image.Image, stem: Path) -> None:
        left, top = round(image.width * share / 2), round(image.height * share / 2)
        box = (left, top, image.width - left, image.height - top)
        image.crop(box).save(stem.with_suffix(".png"))

    return change


def _brightened(factor: float) -> Change:
    return lambda image, stem: (
        ImageEnhance.Brightness(image).enhance(factor).save(stem.with_suffix(".png"))
    )


def _compressed(quality: int) -> Change:
    return lambda image, stem: image.save(stem.with_suffix(".jpg"), quality=quality)


def _resized(share: float) -> Change:
    def change(image: Image.Image, stem: Path) -> None:
        size = (round(image.width * share), round(image.height * share))
        image.resize(size, Image.Resampling.LANCZOS).save(stem.with_suffix(".png"))

    return change


CHANGES: dict[str, Change] = {
    "the same pixels": lambda image, stem: image.save(stem.with_suffix(".png")),
    "JPEG, quality 75": _compressed(75),
    "JPEG, quality 30": _compressed(30),
    "half the size": _resized(0.5),
    "5 % of the sides cut off": _cropped(0.05),
    "10 % of the sides cut off": _cropped(0.1),
    "5 % brighter": _brightened(1.05),
    "20 % brighter": _brightened(1.2),
}


def planted(
    originals: CanvasSet, copies: CanvasSet, original_of: dict[str, str], encoder: Encoder
) -> dict[str, Any]:
    """Percent of the copies that are found, and how many are exact, at each cosine."""
    features_ND = torch.cat([extract(encoder, each, encoder.size) for each in (originals, copies)])
    batches = [each.batch(range(len(each))) for each in (originals, copies)]
    images = [batch.image(at).numpy() for batch in batches for at in range(len(batch))]
    together = CanvasSet(
        name="planted",
        pixels=InMemory.of(images),
        aspect_N=np.concatenate([originals.aspect_N, copies.aspect_N]),
        targets={},
        classes={},
        identifiers=(*originals.identifiers, *copies.identifiers),
        fingerprint="",
    )
    result = {}
    for above in ABOVE:
        groups: dict[int, list[str]] = {}
        exact = 0
        for copy in copies_within(together, features_ND, above):
            groups.setdefault(copy.group, []).append(together.identifiers[copy.position])
            exact += copy.kind == "exact"
        pairs = {pair for names in groups.values() for pair in combinations(names, 2)}
        true = {(original, copy) for copy, original in original_of.items()}
        result[f"{above:g}"] = {
            "found": 100 * len(true & pairs) / len(true),
            "exact": exact,
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("--data", required=True, help="images")
    parser.add_argument("--images", type=int, default=200, help="that are copied")
    options = parser.parse_args()
    torch.set_num_threads(1)
    trained = load_encoder(options.run)
    untrained = load_untrained(options.run).module
    assert isinstance(untrained, Encoder)
    source = open_source(options.data)
    originals = open_canvas(options.data, trained.size)
    drawn = np.random.default_rng(0).permutation(len(source))[: options.images]
    found: dict[str, dict[str, Any]] = {"trained": {}, "untrained": {}}
    for name, change in CHANGES.items():
        with tempfile.TemporaryDirectory() as folder:
            original_of = {}
            for at in drawn.tolist():
                change(Image.fromarray(source.load(at)), Path(folder, f"{at:05d}"))
            copies = open_canvas(DataConfig(folder, cache=Path(folder, "cache")), trained.size)
            for copy in copies.identifiers:
                original_of[copy] = source.identifier(int(Path(copy).stem))
            for kind, encoder in (("trained", trained), ("untrained", untrained)):
                found[kind][name] = planted(originals, copies, original_of, encoder)
                print(kind, name, found[kind][name])
    config = configuration_of(RunFolder(options.run))
    result = {
        "setting": {
            "images": len(originals), "copied": len(drawn), "size": trained.size,
            "encoder": config.encoder.name, "epochs": config.epochs,
        },
        "encoders": found,
        "provenance": provenance(),
    }  # fmt: skip
    write_json(RESULTS / "copies.json", result)


if __name__ == "__main__":
    main()
