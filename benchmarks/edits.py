"""How well edits of photos are distinguished from other photos, and their changes named.

    python benchmarks/edits.py NAME=FOLDER... [--photos 40] [--others 600]

Each photo gets twenty edits, which `mast.search.edits` compares with it. Pairs of photos of one
subfolder, or without subfolders of consecutive names, are compared as well: in UKBench these show
one object from two viewpoints. Each folder is a part of the result file. Three minutes on one core.
"""

import argparse
import io
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measure import RESULTS, report_setting
from PIL import Image, ImageDraw, ImageFilter, ImageOps

from mast.search.edits import AGREED, Edit, Thumbnail, edit_between

RESULT = RESULTS / "edits.json"
# The change to name for each edit; none for near copies.
NAMED = {
    "crop 7/8": "cropped", "crop 0.6": "cropped", "crop 0.45": "cropped", "mirrored": "mirrored",
    "flipped": "mirrored", "turned 25": "turned", "turned 90": "turned", "square": "stretched",
    "recolored": "recolored", "gray": "gray", "inverted": "inverted", "darker": "brightness",
    "caption": "extended", "framed": "extended", "collage": "extended", "covered": "covered",
    "blurred": "blurred", "strongly blurred": "blurred", "JPEG 20": "", "a third": "",
}  # fmt: skip


def edits(photo: Image.Image, draw: random.Random) -> Iterator[Image.Image]:
    """In the order of `NAMED`."""
    width, height = photo.size
    for share in (0.875, 0.6, 0.45):
        across, down = int(share * width), int(share * height)
        left, top = draw.randint(0, width - across), draw.randint(0, height - down)
        yield photo.crop((left, top, left + across, top + down))
    yield ImageOps.mirror(photo)
    yield ImageOps.flip(photo)
    yield photo.rotate(25, Image.Resampling.BILINEAR)
    yield photo.rotate(90, expand=True)
    yield photo.resize((height, height))
    hue, saturation, value = photo.convert("HSV").split()
    turned = hue.point(lambda degree: (degree + 85) % 256)
    yield Image.merge("HSV", (turned, saturation, value)).convert("RGB")
    yield photo.convert("L").convert("RGB")
    yield ImageOps.invert(photo)
    yield photo.point(lambda level: level // 2)
    caption = ImageOps.expand(photo, border=(0, 0, 0, height // 5), fill="white")
    ImageDraw.Draw(caption).text((10, 1.05 * height), "words below a photo", fill="black")
    yield caption
    yield ImageOps.expand(photo, border=(int(0.15 * width), int(0.15 * height)), fill="black")
    collage = Image.new("RGB", (2 * width, height))
    collage.paste(photo)
    collage.paste(photo.filter(ImageFilter.GaussianBlur(30)).rotate(180), (width, 0))
    yield collage
    covered = photo.copy()
    corners = (int(0.3 * width), int(0.35 * height), int(0.7 * width), int(0.65 * height))
    ImageDraw.Draw(covered).rectangle(corners, fill="yellow")
    yield covered
    for share in (160, 80):
        yield photo.filter(ImageFilter.GaussianBlur(max(width, height) / share))
    yield compressed(photo, 20)
    yield photo.resize((width // 3, height // 3))


def compressed(photo: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def changed(edit: str, photo: Image.Image) -> str:
    """What an edit is to be called: a square photo is not stretched."""
    return "" if edit == "square" and 0.96 < photo.width / photo.height < 1.04 else NAMED[edit]


def named(edit: Edit, name: str) -> bool:
    """Whether the change is among those that are named, or it is a near copy and no other."""
    return name in edit.changes() if name else edit.is_near


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sets", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--photos", type=int, default=40, help="of each set, that are edited")
    parser.add_argument("--others", type=int, default=600, help="pairs of other photos")
    options = parser.parse_args()
    for name, _, folder in (each.partition("=") for each in options.sets):
        draw, files = random.Random(0), sorted(Path(folder).rglob("*.jpg"))
        photos = draw.sample(files, min(options.photos, len(files)))
        found: dict[str, list[Edit]] = {each: [] for each in NAMED}
        names: dict[str, list[str]] = {each: [] for each in NAMED}
        begun = time.process_time()
        for file in photos:
            photo = Image.open(file).convert("RGB")
            first = Thumbnail(np.array(photo))
            for edit, image in zip(NAMED, edits(photo, draw), strict=True):
                second = Thumbnail(np.array(compressed(image, 90)))
                found[edit].append(edit_between(first, second))
                names[edit].append(changed(edit, photo))
        seconds = time.process_time() - begun
        pairs = [pair for _, group in itertools.groupby(files, lambda file: file.parent)
                 for pair in itertools.combinations(group, 2)]  # fmt: skip
        if len(pairs) > options.others:
            pairs = draw.sample(pairs, options.others)
        others = [
            edit_between(*(Thumbnail(np.array(Image.open(file).convert("RGB"))) for file in pair))
            for pair in pairs
        ]
        joined = [pair for pair, edit in zip(pairs, others, strict=True)
                  if edit.agreement >= AGREED and edit.points]  # fmt: skip
        rows = {
            edit: {
                "found": sum(each.agreement >= AGREED and each.points > 0 for each in all_of),
                "named": sum(each.agreement >= AGREED and named(each, name)
                             for each, name in zip(all_of, names[edit], strict=True)),
            }
            for edit, all_of in found.items()
        }  # fmt: skip
        result = {
            "photos": len(photos), "edits": rows, "others": len(pairs), "joined": len(joined),
            "joined_pairs": [[str(file.relative_to(folder)) for file in pair] for pair in joined],
            "ms a pair": 1e3 * seconds / len(photos) / len(NAMED),
        }  # fmt: skip
        report_setting(RESULT, {"set": name}, result)
        share = sum(row["found"] for row in rows.values()) / len(NAMED) / len(photos)
        print(f"{name}: {100 * share:.1f} % found, {len(joined)} of {len(pairs)} others joined")


if __name__ == "__main__":
    main()
