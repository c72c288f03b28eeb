"""Draw README's first picture: what a search finds that ignores or matches the color of photos.

    python docs/picture.py COCO WEIGHTS

COCO is a folder of COCO 2017 (128 photos were used), WEIGHTS are EfficientNet-Lite0's on ImageNet.
The search set is photos whose license asks for credit at most, and recolored copies; `mast.adapt`
looks at the others. The query is the photo whose turned copy finds it last by the encoder's output.
"""

import json
import sys
import tempfile
import textwrap
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps, ImageStat
from torch.nn.functional import normalize

import mast


def recolored(photo: Image.Image, hue: int) -> Image.Image:
    """Turn its hues by so much of 256."""
    hues, *others = photo.convert("HSV").split()
    return Image.merge("HSV", (hues.point(lambda at: (at + hue) % 256), *others)).convert("RGB")


COCO, FOLDER = Path(sys.argv[1]), Path(__file__).parent / "images"
FREE = (4, 7, 8)  # COCO's numbers of CC BY, no known restrictions, United States Government
SIZE, NEAREST, STEP, LEFT, TOP = 160, 5, 166, 200, 48
OUTPUT, ALL = "nearest by the encoder", "ignoring all changes"
SPACES = {OUTPUT: {}, "ignoring color": {"ignore": "color"}, "matching color": {"match": "color"},
          ALL: {"ignore": "all"}}  # fmt: skip
PAGE = """# The photos of the first picture

Of {} turned and recolored copies, how many find their photo, or its upright recolored copy, first;
and how many of the 4 nearest other photos of the latter are recolored ({:.0f} % of all are):

{}
Photos of COCO 2017, which `docs/picture.py` cropped to a square, scaled down and changed as listed:

{}"""
described = []
for part in ("train2017", "val2017"):
    read = json.loads((COCO / "annotations" / f"instances_{part}.json").read_text())
    terms = {each["id"]: f"[{each['name']}]({each['url']})" for each in read["licenses"]}
    described += [{**each, "path": COCO / part / each["file_name"]} for each in read["images"]]
with tempfile.TemporaryDirectory() as folder:
    for path in (each["path"] for each in described if each["license"] not in FREE):
        Path(folder, path.name).symlink_to(path.resolve())
    encoder, weights = "timm:tf_efficientnet_lite0.in1k", f"order:{sys.argv[2]}"
    found = mast.adapt(encoder, folder, out=f"{folder}/adapted", size=SIZE, weights=weights)
free = [each for each in described if each["license"] in FREE]
photos = [ImageOps.fit(Image.open(each["path"]).convert("RGB"), (320, 320)) for each in free]
colored = [at for at, each in enumerate(photos) if ImageStat.Stat(each.convert("HSV")).mean[1] > 8]
images = photos + [recolored(photos[at], 85) for at in colored]  # the search set
first, end, copies = len(photos), len(images), len(colored)
images += [recolored(photos[at], 170).transpose(Image.Transpose.ROTATE_90) for at in colored]
changes = [""] * first + [", recolored"] * copies + [", turned and recolored"] * copies
photo_of, asked = torch.tensor([*range(first), *colored, *colored]), torch.tensor(colored)[:, None]
order, numbers, views = {}, "", mast.open_images(images, SIZE)
for title, chosen in SPACES.items():
    model = found.adapted if chosen else found.adapted.encoder
    with torch.no_grad():
        features = normalize(model(views, **chosen), dim=1)
    order[title] = near = (features @ features[:end].T).argsort(dim=1, descending=True)
    right, others = photo_of[near[end:, :1]] == asked, photo_of[near[first:end]] != asked
    tinted = 100 * (near[first:end][others & (others.cumsum(1) <= 4)] >= first).float().mean()
    numbers += f"- {title}: {right.sum()} of {copies}; {tinted:.0f} %\n"
last = int((photo_of[order[OUTPUT][end:]] == asked).int().argmax(dim=1).argmax())
picture = Image.new("RGB", (LEFT + (NEAREST + 1) * STEP + 16, 5 * STEP + 2 * TOP), "white")
draw, font, shown, credits = ImageDraw.Draw(picture), ImageFont.load_default(29), set(), ""
draw.text((LEFT, 6), "a photo, and the nearest to it", "black", font)
draw.text((LEFT, TOP + 3 * STEP + 6), "the same photo, turned and recolored", "black", font)
for row, title in enumerate((*[*SPACES][:3], OUTPUT, ALL)):
    query, y = (colored[last], TOP + row * STEP) if row < 3 else (end + last, 2 * TOP + row * STEP)
    draw.text((8, y + 42), textwrap.fill(title, 12), "black", font)
    nearest = [at for at in order[title][query].tolist() if at != query][:NEAREST]
    for column, at in enumerate((query, *nearest)):
        x = LEFT + column * STEP + 16 * (column > 0)
        if column and photo_of[at] == colored[last]:  # the query's photo or its copy
            draw.rectangle((x - 5, y - 5, x + STEP - 6, y + STEP - 6), "darkorange")
        picture.paste(images[at].resize((STEP - 10, STEP - 10)), (x, y))
        shown.add(at)
picture.save(FOLDER / "photos.jpg", quality=80)
for at in sorted(shown):
    of = free[photo_of[at]]
    credits += f"- {of['file_name']}{changes[at]}: {of['flickr_url']}, {terms[of['license']]}\n"
(FOLDER / "photos.md").write_text(PAGE.format(copies, 100 * copies / end, numbers, credits))
