"""Draw README's picture: what a search finds, by what it ignores or matches.

    python docs/picture.py COCO

COCO is a folder of COCO 2017 (128 photos were used). Those whose license asks for credit at most
are searched, in three colors and three orientations; operators are measured on the others.
"""

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

import mast

COCO, FOLDER = Path(sys.argv[1]), Path(__file__).parent / "images"
FREE = (4, 7, 8)  # COCO's numbers of CC BY, no known restrictions, United States Government
SIDE, STEP, LABEL, NEAREST, BUS = 220, 228, 56, 6, "000000000471.jpg"
HUES, TURNS, COPIES = (0, 85, 170), (0, 90, 270), 8  # of 256; degrees
ROWS = (
    ("", "encoder alone", {}),
    ("--ignore color orientation", "any color, any way up", {"ignore": ["color", "orientation"]}),
    ("--match color", "same color, any content", {"match": "color"}),
)
PAGE = """# The photos of the first picture

We searched {2} images: {0} photos ({1} in color), each also rotated left and right, and those in
color also with hues rotated by 120° and 240°. Operators were measured on {3} other photos. Each
color photo was a query. *All copies*: queries that rank their {4} copies first. *Color*: share of
the {5} nearest whose mean hue is within 30° of the query's.

| search | all copies | color |
|---|---|---|
{6}
Photos of COCO 2017; `docs/picture.py` crops, scales, recolors and rotates them:

{7}"""


def changed(photo: Image.Image, hue: int, degrees: int) -> Image.Image:
    """The photo, its hues turned by so much of 256, itself by degrees."""
    hues, *others = photo.convert("HSV").split()
    recolored = Image.merge("HSV", (hues.point(lambda at: (at + hue) % 256), *others))
    return (recolored.convert("RGB") if hue else photo).rotate(degrees)


def mean_hue(image: Image.Image) -> complex:
    """A point of the unit circle; 0 of a gray image."""
    hue, saturation, value = np.moveaxis(np.asarray(image.convert("HSV"), float), -1, 0)
    mean = (saturation * value * np.exp(2j * np.pi * hue / 256)).mean()
    return complex(mean / (abs(mean) + 1e-9))


described, terms, images, source, queries, credits = [], {}, [], [], [], {}
for part in ("train2017", "val2017"):
    read = json.loads((COCO / "annotations" / f"instances_{part}.json").read_text())
    terms |= {each["id"]: f"[{each['name']}]({each['url']})" for each in read["licenses"]}
    described += [{**each, "path": COCO / part / each["file_name"]} for each in read["images"]]
others = [each["path"] for each in described if each["license"] not in FREE]
for each in (each for each in described if each["license"] in FREE):
    photo = ImageOps.fit(Image.open(each["path"]).convert("RGB"), (320, 320))
    queries += [len(images)] * bool(mean_hue(photo))
    copies = [changed(photo, hue, degrees) for hue in HUES for degrees in TURNS]
    images += copies if mean_hue(photo) else copies[: len(TURNS)]
    source += [each["file_name"]] * (len(images) - len(source))
    credits[source[-1]] = f"- {source[-1]}: {each['flickr_url']}, {terms[each['license']]}\n"
photo_of, hues = np.array(source), np.array([*map(mean_hue, images)])
asked, hues_asked = photo_of[queries, None], hues[queries, None]
picture = Image.new("RGB", ((NEAREST + 1) * STEP + 8, len(ROWS) * (STEP + LABEL)), "white")
draw, font, table = ImageDraw.Draw(picture), ImageFont.load_default(30), ""
shown, encoder = {}, mast.Encoder().measure(others)
for row, (typed, words, chosen) in enumerate(ROWS):
    features = encoder.encode(images, **chosen)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    near = (-features[queries] @ features.T).argsort(axis=1)  # the query itself is first
    right = (photo_of[near[:, 1 : COPIES + 1]] == asked).all(axis=1).sum()
    close = (hues[near[:, 1 : NEAREST + 1]] / hues_asked).real > np.cos(np.pi / 6)
    table += f"| {words} | {right} of {len(queries)} | {close.mean():.0%} |\n"
    y = row * (STEP + LABEL)
    draw.text((0, y + 10), f"mast neighbours photos --query bus.jpg {typed}", "black", font)
    draw.text((picture.width - 8, y + 10), words, "dimgray", font, anchor="ra")
    for column, at in enumerate(near[list(asked[:, 0]).index(BUS), : NEAREST + 1]):
        x = column * STEP + 16 * (column > 0)
        picture.paste(images[at].resize((SIDE, SIDE)), (x, y + LABEL))
        shown[source[at]] = credits[source[at]]
picture.save(FOLDER / "photos.jpg", quality=70)
counts = len(credits), len(queries), len(images), len(others), COPIES, NEAREST
(FOLDER / "photos.md").write_text(PAGE.format(*counts, table, "".join(shown.values())))
