"""Closed-form subspaces beside what else compares images with a frozen encoder.

    python benchmarks/invariances.py ENCODER --copies NAME=FOLDER... --classes NAME=FOLDER...
        --photos FOLDER --distractors FOLDER [--weights FILE] [--size 160] [--cache FOLDER]

Sets of --copies and --classes have a subfolder a class. Half of at most 1,000 of their photos can
be learned from (labels, subspaces of their own), half are tested. Of --copies 100 of these are
changed in twelve ways of three strengths, by Pillow, and looked for among all others and the
distractors.
Subspaces are those of five disjoint draws of 100 of --photos, of all 500, or of 100 of the set's
own. Features are kept in the cache, so that a run that was ended continues. Each encoder is a part
of the result file.
"""

import argparse
import io
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from measure import RESULTS
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps
from scipy.stats import t as student
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

import mast
from mast.augment import named_operators, operators_for
from mast.commands.adapt import STRONGER
from mast.core.checkpoint import write_json
from mast.core.run import provenance
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.measure.changes import changed_by
from mast.measure.compute import Compute
from mast.measure.features import extract
from mast.measure.subspaces import Subspaces
from mast.models import Depths
from mast.runs.load import load

RESULT = RESULTS / "invariances.json"
PHOTOS, CHANGED, LOOKED_AT, DRAWS, BATCH = 1000, 100, 100, 5, 50
STRENGTHS = ("weak", "medium", "strong")
Photo = Image.Image
Change = Callable[[Photo, int, random.Random], Photo]
Seen = Callable[[Tensor], Tensor]  # features to what is compared
PROPERTIES = ("all", "color", "orientation", "position", "focus")
RATES = (0.01, 0.001)  # of queries that find a distractor
SHOTS, EPISODES, NEAREST, COLORS = (1, 5), 50, 10, 8
WHITENED, GALLERY = 256, 10_000  # axes, and distractors among which they are found


def crop(photo: Photo, strength: int, draw: random.Random) -> Photo:
    """About 60, 30 and 12 % of the area."""
    width, height = photo.size
    area = (0.6, 0.3, 0.12)[strength] * width * height * draw.uniform(0.9, 1.1)
    ratio = draw.uniform(3 / 4, 4 / 3) * width / height
    w, h = min(width, int((area * ratio) ** 0.5)), min(height, int((area / ratio) ** 0.5))
    left, top = draw.randint(0, width - w), draw.randint(0, height - h)
    return photo.crop((left, top, left + w, top + h))


def rotate(photo: Photo, strength: int, draw: random.Random) -> Photo:
    """By 10, 30 and 45 to 180 degrees, either way."""
    angle = (10, 30, draw.uniform(45, 180))[strength] * draw.choice((-1, 1))
    return photo.rotate(angle, Image.Resampling.BILINEAR)


def turn(photo: Photo, strength: int, draw: random.Random) -> Photo:
    """Mirrored, upside down, by a quarter."""
    if strength == 2:
        return photo.rotate(draw.choice((90, 270)), expand=True)
    return (ImageOps.mirror, ImageOps.flip)[strength](photo)


def perspective(photo: Photo, strength: int, draw: random.Random) -> Photo:
    """Corners moved inwards by up to 10, 20 and 35 % of a side."""
    width, height = photo.size
    most = (0.1, 0.2, 0.35)[strength]
    corners = [(draw.uniform(0.3, 1) * most * width, draw.uniform(0.3, 1) * most * height)
               for _ in range(4)]  # fmt: skip
    (a, b), (c, d), (e, f), (g, h) = corners
    quad = (a, b, c, height - d, width - e, height - f, width - g, h)
    return photo.transform(photo.size, Image.Transform.QUAD, quad, Image.Resampling.BILINEAR)


def recolor(photo: Photo, strength: int, draw: random.Random) -> Photo:
    """Hues moved by 20, 60 and 90 to 180 degrees."""
    degrees = (20, 60, draw.uniform(90, 180))[strength] * draw.choice((-1, 1))
    values = np.asarray(photo.convert("HSV")).copy()
    values[..., 0] += np.uint8(round(degrees / 360 * 256) % 256)
    return Image.fromarray(values, "HSV").convert("RGB")


def enhance(kind: type, factors: tuple[float, ...]) -> Change:
    """Brightness, contrast or saturation times one of the factors, or divided by it."""

    def changed(photo: Photo, strength: int, draw: random.Random) -> Photo:
        return kind(photo).enhance(factors[strength] ** draw.choice((-1, 1)))

    return changed


def gray(photo: Photo, strength: int, draw: random.Random) -> Photo:
    """Less than half of the saturation, none, black and white in four levels."""
    if strength == 0:
        return ImageEnhance.Color(photo).enhance(0.4)
    plain = photo.convert("L")
    return (plain if strength == 1 else ImageOps.posterize(plain, 2)).convert("RGB")


def blur(photo: Photo, strength: int, draw: random.Random) -> Photo:
    """By a Gaussian of 0.5, 1 and 2 % of the short side."""
    return photo.filter(ImageFilter.GaussianBlur(min(photo.size) * (0.005, 0.01, 0.02)[strength]))


def noise(photo: Photo, strength: int, draw: random.Random) -> Photo:
    """Of deviation 10, 25 and 50 of 255."""
    generator = np.random.default_rng(draw.randrange(2**32))
    values = np.asarray(photo, dtype=np.float32)
    values = values + generator.normal(0, (10, 25, 50)[strength], values.shape)
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def compress(photo: Photo, strength: int, draw: random.Random) -> Photo:
    """JPEG of quality 40, 15 and 5."""
    file = io.BytesIO()
    photo.save(file, "JPEG", quality=(40, 15, 5)[strength])
    return Image.open(file).convert("RGB")


def caption(photo: Photo, strength: int, draw: random.Random) -> Photo:
    """A black bar with text over a tenth, a fifth, two fifths of the height."""
    photo, (width, height) = photo.copy(), photo.size
    drawing, top = ImageDraw.Draw(photo), height * (1 - (0.1, 0.2, 0.4)[strength])
    drawing.rectangle((0, top, width, height), fill="black")
    drawing.text((width * draw.uniform(0, 0.5), top), "a caption", fill="white")
    return photo


CHANGES: dict[str, tuple[str, Change]] = {  # and the property that each destroys
    "crop": ("position", crop),
    "rotation": ("orientation", rotate),
    "mirrored, turned": ("orientation", turn),
    "perspective": ("shape", perspective),
    "hue": ("color", recolor),
    "brightness": ("color", enhance(ImageEnhance.Brightness, (1.2, 1.5, 2.0))),
    "contrast": ("color", enhance(ImageEnhance.Contrast, (1.2, 1.5, 2.0))),
    "gray": ("color", gray),
    "blur": ("focus", blur),
    "noise": ("noise", noise),
    "JPEG": ("noise", compress),
    "caption": ("parts", caption),
}


class Features:
    """Features of all depths of an encoder, kept in files.

    Args:
        depths: The encoder.
        folder: Of the files.
    """

    def __init__(self, depths: Depths, folder: Path) -> None:
        self.depths = depths
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, name: str, found: Callable[[], Tensor]) -> Tensor:
        """Those of a file, or what is found, which is kept in it."""
        file = self.folder / f"{name.replace('/', '-')}.npy"
        if not file.is_file():
            partial_file = file.with_suffix(".partial")
            with partial_file.open("wb") as opened:
                np.save(opened, found().to(torch.bfloat16).view(torch.int16).numpy())
            partial_file.rename(file)
        return torch.from_numpy(np.load(file)).view(torch.bfloat16).float()

    def of(self, name: str, canvases: CanvasSet) -> Tensor:
        """Of the photos of a set."""
        size, compute = self.depths.size, Compute("cpu")
        return self(name, lambda: extract(self.depths, canvases, size, compute, None))

    def moved(self, name: str, canvases: CanvasSet) -> dict[str, Tensor]:
        """Of their copies by each operator, as `mast adapt` makes them."""
        size, compute, found = self.depths.size, Compute("cpu"), {}
        for at, operator in enumerate(operators_for(3)):
            drawn = STRONGER.get(operator, {})
            change = changed_by(operator, None, size, len(canvases), at, **drawn)
            found[operator] = self(
                f"{name}-{operator}",
                partial(extract, self.depths, canvases, size, compute, change),
            )
        return found

    def changed(self, name: str, files: list[Path], change: Change, strength: int) -> Tensor:
        """Of files that were changed."""
        draw = random.Random(strength)

        @torch.inference_mode()
        def found() -> Tensor:
            parts = []
            for first in range(0, len(files), BATCH):
                photos = [Image.open(file).convert("RGB") for file in files[first : first + BATCH]]
                copies = [change(photo, strength, draw) for photo in photos]
                parts.append(self.depths(mast.open_images(copies, self.depths.size)))
            return torch.cat(parts)

        return self(f"{name}-{strength}", found)


class PhotoSet:
    """The photos of a folder, in an order drawn once: the first half to learn from.

    Args:
        name: In the results.
        folder: With a subfolder a class.
        features: Where its features are kept.
        most: Photos.
        looked_at: Of them, to find subspaces.
    """

    def __init__(
        self, name: str, folder: Path, features: Features, most: int = PHOTOS,
        looked_at: int = LOOKED_AT,
    ) -> None:  # fmt: skip
        config = DataConfig(str(folder))
        canvases = open_canvas(config, features.depths.size, model=features.depths)
        order_N = np.random.default_rng(0).permutation(len(canvases))[:most]
        self.name, self.features, self.looked_at = name, features, looked_at
        self.canvases = canvases.part(order_N, name)
        self.files = [folder / each for each in self.canvases.identifiers]
        self.half = len(order_N) // 2

    def plain(self) -> Tensor:
        """Features of unchanged photos."""
        return self.features.of(self.name, self.canvases)

    def changed(self) -> Iterator[tuple[str, int, Tensor]]:
        """Features of changed photos, the first that are not to be learned from."""
        files = self.files[self.half : self.half + CHANGED]
        for name, (_, change) in CHANGES.items():
            for strength in range(len(STRENGTHS)):
                found = self.features.changed(f"{self.name}-{name}", files, change, strength)
                yield name, strength, found

    def subspaces(self, first: int, count: int) -> Subspaces:
        """Of some of those that are looked at."""
        looked_at, part = range(self.looked_at), slice(first, first + count)
        moved = self.features.moved(self.name, self.canvases.part(looked_at, self.name))
        some = {name: values[part] for name, values in moved.items()}
        return Subspaces.of(self.plain()[part], some, self.features.depths.widths)

    def kinds(self) -> np.ndarray:
        """The class of each."""
        return np.array([file.parent.name for file in self.files])

    def bins(self) -> np.ndarray:
        """The color of the middle of each, in eight bins."""
        middle = np.stack(
            [
                np.asarray(Image.open(file).convert("RGB").resize((4, 4), Image.Resampling.BOX))[
                    1:3, 1:3
                ]
                for file in self.files
            ]
        )
        red, green, blue = (middle.mean((1, 2)) / 255).T
        opponent = [0.7 * (red + green + blue) / 3, 2 * (red - green), red + green - 2 * blue]
        return KMeans(COLORS, n_init=10, random_state=0).fit_predict(np.stack(opponent, 1))


def whitened(gallery_NF: Tensor) -> Seen:
    """PCA-whitening by what is searched."""
    pca = PCA(WHITENED, whiten=True, svd_solver="randomized", random_state=0)
    pca.fit(gallery_NF.numpy())
    return lambda features_NF: torch.from_numpy(pca.transform(features_NF.numpy()))


def hits(photos: Tensor, others: Tensor, query_QD: Tensor) -> dict[str, Tensor]:
    """Of each bar whether copies (C, N) reach it, in percent.

    Args:
        photos: Vectors (M, D) of a set, those N that were changed first.
        others: Of the distractors.
        query_QD: Of the copies, change by change.
    """
    cosine_QM = query_QD @ photos.T
    own_QM = torch.arange(len(photos)) == torch.arange(len(query_QD))[:, None] % CHANGED
    right_Q = cosine_QM[own_QM]
    other_Q = cosine_QM.masked_fill(own_QM, -2).amax(dim=1)
    distractor_Q = (query_QD @ others.T).amax(dim=1)
    bars = {f"at {100 * rate:g} %": distractor_Q.quantile(1 - rate) for rate in RATES}
    bars["first"] = torch.maximum(other_Q, distractor_Q)
    return {name: 100 * (right_Q > bar).float().view(-1, CHANGED) for name, bar in bars.items()}


def found_copies(photos: Tensor, others: Tensor, changed: list[Tensor]) -> dict[str, np.ndarray]:
    """Whether copies are found, in percent of those of each photo: all (N,), and the strong ones.

    Args:
        photos: As `hits`.
        others: Likewise.
        changed: Vectors (N, D), of each change and strength.
    """
    found: dict[str, np.ndarray] = {}
    for name, hit_CN in hits(photos, others, torch.cat(changed)).items():
        found[name] = hit_CN.mean(dim=0).numpy()
        for change, hit_N in zip(
            CHANGES, hit_CN[len(STRENGTHS) - 1 :: len(STRENGTHS)], strict=True
        ):
            found[f"{change} {name}"] = hit_N.numpy()
    return found


def classified(
    vectors_ND: Tensor, kinds: np.ndarray, bins: np.ndarray, half: int
) -> dict[str, np.ndarray]:
    """What neighbours say of the photos of a set, in percent of each.

    Args:
        vectors_ND: Of all photos.
        kinds: Their classes.
        bins: The colors of their middles.
        half: How many can be learned from; the others are tested.
    """
    found = {}
    near_NK = (vectors_ND @ vectors_ND.T).fill_diagonal_(-2).topk(NEAREST, dim=1).indices.numpy()
    for name, of in (("class of 10", kinds), ("color of 10", bins)):
        found[name] = 100 * (of[near_NK] == of[:, None]).mean(axis=1)
    learned, tested = vectors_ND[:half].numpy(), vectors_ND[half:].numpy()
    knn = KNeighborsClassifier(NEAREST, metric="cosine", algorithm="brute", weights="distance")
    found["kNN"] = 100.0 * (knn.fit(learned, kinds[:half]).predict(tested) == kinds[half:])
    for shots in SHOTS:
        right = []
        for episode in range(EPISODES):
            draw = np.random.default_rng(episode)
            names = np.unique(kinds[:half])
            chosen = [
                draw.permutation(np.flatnonzero(kinds[:half] == name))[:shots] for name in names
            ]
            means = np.stack([learned[each].mean(axis=0) for each in chosen])
            means /= np.linalg.norm(means, axis=1, keepdims=True)
            right.append(100 * (names[(tested @ means.T).argmax(axis=1)] == kinds[half:]).mean())
        found[f"{shots} a class"] = np.array(right)
    return found


def interval(draws: list[np.ndarray]) -> dict[str, float]:
    """The mean of photos (of episodes), half of its 95 % interval, and the deviation of draws."""
    each = np.mean(draws, axis=0)
    half = float(student.ppf(0.975, len(each) - 1) * each.std(ddof=1) / len(each) ** 0.5)
    spread = float(np.std([draw.mean() for draw in draws], ddof=1)) if len(draws) > 1 else 0.0
    return {"mean": float(each.mean()), "half": half, "draws": spread}


def ways(
    sets: Mapping[str, PhotoSet], searched: Sequence[str], photos: PhotoSet, other_MF: Tensor
) -> Iterator[tuple[str, list[dict[str, Seen]]]]:
    """Each way to compare photos: of each draw of subspaces the space for each set.

    Args:
        sets: By name.
        searched: Those of which subspaces of their own are used, too.
        photos: Whose subspaces are used for all, in draws.
        other_MF: Features of distractors.
    """

    def alike(*draws: Seen) -> list[dict[str, Seen]]:
        return [dict.fromkeys(sets, seen) for seen in draws]

    last = slice(-photos.features.depths.widths[-1], None)
    gallery_NF = torch.cat([*(each.plain() for each in sets.values()), other_MF[:GALLERY]])
    white = whitened(gallery_NF[:, last])
    yield "last map", alike(lambda x: x[:, last])
    yield "last map, whitened", alike(lambda x: white(x[:, last]))
    draws = [photos.subspaces(at, LOOKED_AT) for at in range(0, photos.looked_at, LOOKED_AT)]
    scaled, every = draws[0].ignoring(()), tuple(draws[0].moves)
    all_white = whitened(scaled(gallery_NF))
    yield "all depths", alike(scaled)
    yield "all depths, whitened", alike(lambda x: all_white(scaled(x)))
    for kind in PROPERTIES:
        names = named_operators(kind, every)
        yield f"ignore {kind}", alike(*(each.ignoring(names) for each in draws))
    names = named_operators("color", every)
    yield "match color", alike(*(each.matching(names) for each in draws))
    whole = photos.subspaces(0, photos.looked_at)
    yield f"ignore all, {photos.looked_at} photos", alike(whole.ignoring(every))
    own = {name: sets[name].subspaces(0, LOOKED_AT) for name in searched}
    yield (
        "ignore all, photos of its own",
        [{name: each.ignoring(tuple(each.moves)) for name, each in own.items()}],
    )


def arguments(about: str) -> argparse.ArgumentParser:
    """Which encoder, and where the sets are."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("encoder")
    parser.add_argument("--copies", nargs="+", required=True)
    parser.add_argument("--classes", nargs="+", default=[])
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--distractors", type=Path, required=True)
    parser.add_argument("--weights")
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--cache", type=Path, default=Path("runs/invariances"))
    return parser


def opened(
    options: argparse.Namespace, module: nn.Module
) -> tuple[dict[str, PhotoSet], PhotoSet, PhotoSet]:
    """The sets, the photos that are looked at, and the distractors."""
    depths = Depths(module, options.size).eval()
    name = options.encoder.replace("/", "-").replace(":", "-")
    features = Features(depths, options.cache / f"{name}-{options.size}")
    sets = {}
    for each in (*options.copies, *options.classes):
        name, _, folder = each.partition("=")
        sets[name] = PhotoSet(name, Path(folder), features)
    photos = PhotoSet("photos", options.photos, features, PHOTOS, DRAWS * LOOKED_AT)
    return sets, photos, PhotoSet("distractors", options.distractors, features, 50_000)


def main() -> None:
    options = arguments(__doc__).parse_args()
    loaded = load(options.encoder, "encoder", options.size, 0, options.weights, True)
    sets, photos, distractors = opened(options, loaded.module)
    searched = [each.partition("=")[0] for each in options.copies]
    rows: dict[str, dict[str, dict[str, dict[str, float]]]] = {name: {} for name in sets}
    labels = {name: (each.kinds(), each.bins()) for name, each in sets.items()}
    other_MF = distractors.plain()
    for way, draws in ways(sets, searched, photos, other_MF):
        found: dict[str, dict[str, list[np.ndarray]]] = {name: {} for name in sets}
        for spaces in draws:
            shared = len({id(seen) for seen in spaces.values()}) == 1
            others_MD = None
            for name, seen in spaces.items():
                each = sets[name]
                vectors_ND = F.normalize(seen(each.plain()))
                results = classified(vectors_ND, *labels[name], each.half)
                if name in searched:
                    if others_MD is None or not shared:
                        others_MD = F.normalize(seen(other_MF))
                    copies = [F.normalize(seen(changed_CF)) for _, _, changed_CF in each.changed()]
                    results |= found_copies(vectors_ND.roll(-each.half, 0), others_MD, copies)
                for measure, values in results.items():
                    found[name].setdefault(measure, []).append(values)
        for name, measures in found.items():
            if measures:
                rows[name][way] = {key: interval(values) for key, values in measures.items()}
        print(way, flush=True)
    before = json.loads(RESULT.read_text())["measured"] if RESULT.is_file() else []
    setting = {
        "encoder": options.encoder,
        "weights": Path(options.weights.removeprefix("order:")).name if options.weights else None,
        "size": options.size,
        "photos": "/".join(options.photos.parts[-2:]),
        "distractors": len(distractors.files),
        "sets": {name: len(each.files) for name, each in sets.items()},
    }
    others = [each for each in before if each["setting"] != setting]
    now = {"setting": setting, "rows": rows, "provenance": provenance()}
    write_json(RESULT, {"measured": [*others, now]})


if __name__ == "__main__":
    main()
