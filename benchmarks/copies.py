"""Recall and precision of finding edited copies of photos, by imagededup's published protocol.

    python benchmarks/copies.py SETS [--photos 100] [--seeds 3] [--others PYTHON] [--encoder FILE]
    python benchmarks/copies.py SETS --tiles 1000

SETS holds flowers17, dtd10 and coco128. Each photo gets five copies, as in
https://idealo.github.io/imagededup/user_guide/benchmarks: a crop of 7/8 of its sides, two flips, a
rotation by 25 degrees, and another aspect ratio. A pair is right if it has a photo and its copy, or
two copies of one photo. Recall is the share of right pairs that are found, precision the share of
found pairs that are right. `joined` lists different photos that were grouped; pairs in `REAL`,
which are copies in their set (judged by eye), do not count. imagehash's pHash is used up to 10
bits, imagededup's default. `--others` is an interpreter with fastdup and czkawka, which run with
their defaults. `--encoder` measures `mast duplicates` alone with another encoder, at 288 pixels,
and its result has its name. `--tiles` cuts so many tiles of 64 pixels out of each set, a dozen of
a photo, which do not overlap: pairs that are found among these, but exact copies, are wrong. Ten
minutes on two cores.
"""

import argparse
import itertools
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import imagehash
import numpy as np
from measure import RESULTS
from PIL import Image

import mast
from mast.core.checkpoint import write_json
from mast.core.run import provenance

SETS = ("flowers17/train", "dtd10/train", "coco128/train2017")
OTHERS = ("fastdup", "czkawka")
TILE, PER_PHOTO = 64, 12  # pixels; tiles
BITS = 10  # of 64 that may differ

REAL = {("image_0962.jpg", "image_1002.jpg"), ("bubbly_0106.jpg", "bubbly_0147.jpg")}

Pairs = set[tuple[str, str]]


def copies(photo: Image.Image, random: np.random.Generator) -> dict[str, Image.Image]:
    """A photo and its five copies."""
    width, height = photo.size
    left, top = (int(random.integers(side // 8 + 1)) for side in photo.size)
    crop = (left, top, left + width * 7 // 8, top + height * 7 // 8)
    return {
        "photo": photo,
        "crop": photo.crop(crop),
        "mirrored": photo.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        "upside-down": photo.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
        "rotated": photo.rotate(25, Image.Resampling.BICUBIC),
        "square": photo.resize((min(photo.size), min(photo.size)), Image.Resampling.BICUBIC),
    }


def write(photos: Iterable[Path], folder: Path, random: np.random.Generator) -> None:
    """Write copies as `<number of the photo>-<change>.jpg`."""
    for at, path in enumerate(photos):
        with Image.open(path) as photo:
            for name, copy in copies(photo.convert("RGB"), random).items():
                copy.save(folder / f"{at:04d}-{name}.jpg", quality=95)


def by_hash(files: list[Path]) -> Pairs:
    """Pairs whose perceptual hashes differ in few bits."""
    bits_NB = np.stack([imagehash.phash(Image.open(file)).hash.ravel() for file in files])
    sign_NB = np.where(bits_NB, 1, -1)
    near_NN = sign_NB @ sign_NB.T >= sign_NB.shape[1] - 2 * BITS
    ends = np.argwhere(np.triu(near_NN, 1))
    return {(files[first].name, files[second].name) for first, second in ends}


def write_tiles(photos: Iterable[Path], folder: Path, count: int) -> None:
    """Write so many tiles as `<name of the photo>-<row>-<column>.png`, of each photo some."""
    written = 0
    for path in photos:
        with Image.open(path) as photo:
            image = photo.convert("RGB")
        corners = itertools.product(
            range(0, image.height - TILE + 1, TILE), range(0, image.width - TILE + 1, TILE)
        )
        for top, left in itertools.islice(corners, min(PER_PHOTO, count - written)):
            tile = image.crop((left, top, left + TILE, top + TILE))
            tile.save(folder / f"{path.stem}-{top}-{left}.png")
            written += 1


def by_mast(folder: Path, encoder: Path | None = None) -> Pairs:
    """Pairs that share a group of `mast duplicates`."""
    options = {} if encoder is None else {"encoder": encoder, "size": 288}
    found = mast.duplicates(folder, **options).columns
    rows = list(zip(found["group"], map(str, found["path"]), strict=True))
    groups = itertools.groupby(rows, key=lambda row: row[0])
    return {
        pair
        for _, group in groups
        for pair in itertools.combinations(sorted(path for _, path in group), 2)
    }


def by_others(python: Path, program: str, folder: Path) -> tuple[Pairs, float, str]:
    """Pairs, seconds without imports, and the version."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "found.json")
        script = Path(__file__).with_name("other_finders.py")
        subprocess.run([python, script, program, folder, out], check=True, capture_output=True)
        found = json.loads(out.read_text())
    return {tuple(pair) for pair in found["pairs"]}, found["seconds"], found["version"]


def tiles(sets: Path, count: int) -> None:
    """Measure how many tiles are grouped, by level; exact ones have the same pixels."""
    rows = []
    for name in SETS:
        paths = sorted((sets / name).rglob("*.jpg"))
        order = np.random.default_rng(0).permutation(len(paths))
        with tempfile.TemporaryDirectory() as place:
            write_tiles((paths[at] for at in order), Path(place), count)
            found = mast.duplicates(place).columns
            row = {
                "set": name, "tiles": len([*Path(place).iterdir()]),
                **Counter(found["level"]), "groups": [
                    [path for _, path in group] for _, group in itertools.groupby(
                        zip(found["group"], found["path"], strict=True), lambda each: each[0])
                ],
            }  # fmt: skip
            rows.append(row)
            print({key: value for key, value in row.items() if key != "groups"}, flush=True)
    write_json(RESULTS / "tiles.json", {"rows": rows, "provenance": provenance()})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sets", type=Path)
    parser.add_argument("--photos", type=int, default=100, help="of each set")
    parser.add_argument("--seeds", type=int, default=3, help="of the photos and crops")
    parser.add_argument("--others", type=Path, help="interpreter with fastdup and czkawka")
    parser.add_argument("--encoder", type=Path, help="of mast duplicates, also measured")
    parser.add_argument("--tiles", type=int, help="of each set, in place of copies")
    options = parser.parse_args()
    if options.tiles:
        tiles(options.sets, options.tiles)
        return
    rows, versions = [], {"imagehash": version("imagehash")}
    others = OTHERS if options.others else ()
    name_of = "copies" if options.encoder is None else f"copies-{options.encoder.stem}"
    for name, seed in itertools.product(SETS, range(options.seeds)):
        random = np.random.default_rng(seed)
        paths = sorted((options.sets / name).rglob("*.jpg"))
        chosen = random.permutation(len(paths))[: options.photos]
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write((paths[at] for at in sorted(chosen)), folder, random)
            files = sorted(folder.iterdir())
            tools = {
                "pHash": lambda files=files: by_hash(files),
                "mast": lambda folder=folder: by_mast(folder),
            }
            if options.encoder is not None:
                tools = {"mast": lambda folder=folder: by_mast(folder, options.encoder)}
            true = len(chosen) * 15  # pairs of six
            for tool in [*tools, *others]:
                begun = time.monotonic()
                if tool in tools:
                    pairs, seconds = tools[tool](), time.monotonic() - begun
                else:
                    pairs, seconds, versions[tool] = by_others(options.others, tool, folder)
                right = sum(first[:4] == second[:4] for first, second in pairs)
                names = [paths[at].name for at in sorted(chosen)]
                joined = [(names[int(first[:4])], names[int(second[:4])])
                          for first, second in pairs if first[:4] != second[:4]]  # fmt: skip
                wrong = [pair for pair in joined if tuple(sorted(pair)) not in REAL]
                row = {
                    "set": name, "seed": seed, "tool": tool, "images": len(files),
                    "recall": 100 * right / true,
                    "precision": 100 * right / max(1, right + len(wrong)),
                    "seconds": seconds, "joined": sorted(set(joined))[:20],
                }  # fmt: skip
                rows.append(row)
                print(row, flush=True)
    result = {"rows": rows, "bits": BITS, "versions": versions, "provenance": provenance()}
    write_json(RESULTS / f"{name_of}.json", result)


if __name__ == "__main__":
    main()
