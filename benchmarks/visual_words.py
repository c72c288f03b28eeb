"""Write the visual words by which `mast duplicates` proposes edits, and what they find.

    python benchmarks/visual_words.py SETS

SETS holds flowers17, dtd10 and coco128. The words are the centers of k-means over SIFT descriptors
of every fourth training texture and test flower and of COCO's validation images; of each center the
mirrored one is a word, too. Then 40 of 640 other photos (training photos of COCO and flowers) have
one edit each: how often is the photo among the three nearest of its edit, or the edit among those
of its photo? Five minutes on two cores.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import faiss
import numpy as np
import torch
from measure import RESULTS, report_setting
from PIL import Image, ImageFilter, ImageOps

import mast
from mast.data import open_photos
from mast.search import words
from mast.search.edits import EditFinder, Thumbnail
from mast.search.nearest import nearest, standardised

LEARNED = {"dtd10/train": 4, "flowers17/test": 4, "coco128/val2017": 1}  # every so many-th photo
SEARCHED = {"coco128/train2017": 1, "flowers17/train": 1}
PHOTOS, CHANGED, NEAREST = 640, 40, 3


def photos(sets: Path, shares: dict[str, int]) -> list[Path]:
    return [file for name, each in shares.items()
            for file in sorted((sets / name).rglob("*.jpg"))[::each]]  # fmt: skip


def opened(file: Path) -> Image.Image:
    return Image.open(file).convert("RGB")


def centers(files: Iterable[Path]) -> np.ndarray:
    """Unit vectors (WORDS, 128) as bytes."""
    found = np.concatenate([Thumbnail(np.array(opened(file))).descriptors() for file in files])
    draw = np.random.default_rng(0)
    means = faiss.Kmeans(128, words.WORDS, niter=20, seed=0, spherical=True)
    means.train(np.ascontiguousarray(draw.permutation(found)))
    scaled = 255 * means.centroids / means.centroids.max(axis=1, keepdims=True)
    return np.asarray(scaled.round().astype(np.uint8))


def part(share: float) -> Callable[[Image.Image], Image.Image]:
    def cropped(photo: Image.Image) -> Image.Image:
        left, top = (
            round((1 - share) * side * at) for side, at in zip(photo.size, (0.3, 0.6), strict=True)
        )
        return photo.crop(
            (left, top, left + round(share * photo.width), top + round(share * photo.height))
        )

    return cropped


def turned(degrees: float) -> Callable[[Image.Image], Image.Image]:
    return lambda photo: photo.rotate(degrees, Image.Resampling.BICUBIC, expand=True)


def collage(photo: Image.Image) -> Image.Image:
    both = Image.new("RGB", (2 * photo.width, photo.height), "darkkhaki")
    both.paste(photo, (0, 0))
    return both


EDITS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "cropped to half the sides": part(0.5), "cropped to 35 %": part(0.35),
    "mirrored, cropped to 60 %": lambda photo: ImageOps.mirror(part(0.6)(photo)),
    "turned by 20°": turned(20), "turned by 45°": turned(45), "turned by 135°": turned(135),
    "half of a picture": collage,
    "blurred": lambda photo: photo.filter(ImageFilter.GaussianBlur(3)),
    "inverted": ImageOps.invert, "gray": lambda photo: ImageOps.grayscale(photo).convert("RGB"),
}  # fmt: skip


def found_of(folder: Path) -> dict[str, int]:
    """How many edits are proposed by features, by words, and by either."""
    encoder = mast.Encoder()
    x_ND = torch.from_numpy(encoder.encode(folder))
    canvases = open_photos(str(folder), encoder.size)
    (x_ND,) = standardised(x_ND)
    by_features = nearest(x_ND, x_ND, 1 + NEAREST)[1]
    pairs = {
        "features": {(at, other) for at, row in enumerate(by_features.tolist()) for other in row},
        "words": {
            *map(
                tuple, words.proposed(EditFinder(canvases), range(len(canvases)), NEAREST).tolist()
            )
        },
    }
    pairs["either"] = pairs["features"] | pairs["words"]
    at = {name: position for position, name in enumerate(canvases.identifiers)}
    ends = [(at[f"{n:04d}.jpg"], at[f"{n:04d}-edit.jpg"]) for n in range(CHANGED)]
    return {
        way: sum((a, b) in known or (b, a) in known for a, b in ends)
        for way, known in pairs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", type=Path)
    options = parser.parse_args()
    np.save(words.FILE, centers(photos(options.sets, LEARNED)))
    files = photos(options.sets, SEARCHED)[:PHOTOS]
    rows = {}
    for name, edit in EDITS.items():
        with tempfile.TemporaryDirectory() as place:
            for at, file in enumerate(files):
                opened(file).save(Path(place, f"{at:04d}.jpg"), quality=92)
                if at < CHANGED:
                    edit(opened(file)).save(Path(place, f"{at:04d}-edit.jpg"), quality=92)
            rows[name] = found_of(Path(place))
        print(name, rows[name], flush=True)
    setting = {"photos": len(files), "edits": CHANGED, "nearest": NEAREST, "words": 2 * words.WORDS}
    report_setting(RESULTS / "visual_words.json", setting, rows)


if __name__ == "__main__":
    main()
