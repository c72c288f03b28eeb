"""Closed-form subspaces beside what else compares images with a frozen encoder.

    python benchmarks/invariances.py ENCODER --copies NAME=FOLDER... --classes NAME=FOLDER...
        --photos FOLDER --distractors FOLDER [--weights FILE] [--size 160] [--cache FOLDER]

ENCODER is a timm name; "akamaster:20" with the clone that `known_accuracy.py` reads for --weights;
"vicreg5_small:0", a recipe and a seed, which is pretrained on --photos at 32 pixels and compared by
its embedding, too; "untrained:0", the same encoder; or "imagehash". Sets of --copies and --classes
have a subfolder per class. Half of at most 1,000 of their photos can be learned from (labels,
subspaces of their own), half are tested. Of --copies 100 of these are changed in twelve ways of
three strengths, by Pillow, and looked for among all others and the distractors.
Subspaces are those of five disjoint draws of 100 of --photos, of all 500, or of 100 of the set's
own. Features are kept in the cache, so that a run that was ended continues. Each encoder is a part
of the result file.
"""

import argparse
import io
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import ClassVar

import imagehash
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from known_accuracy import published_weights, resnet
from measure import RESULTS, report_setting
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps
from scipy.stats import t as student
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn
from torchvision.transforms.v2 import Normalize
from torchvision.transforms.v2.functional import to_pil_image

import mast
from mast.augment import named_operators, operators_for
from mast.core.compute import Compute
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.encoders.changes import changed_by
from mast.encoders.extract import extract
from mast.encoders.load import load
from mast.invariance.measure import STRONGER
from mast.invariance.subspaces import Subspaces
from mast.methods.representations import Embedding
from mast.models import Encoder, EncoderConfig
from mast.models.depths import Depths
from mast.models.encoders import IMAGENET
from mast.recipes import RECIPES
from paper.experiment import NARROW
from paper.outputs import head_weights
from paper.protocols.retrieval import SearchSpace, space_of_heads

RESULT = RESULTS / "invariances.json"
PHOTOS, CHANGED, LOOKED_AT, DRAWS, BATCH = 1000, 100, 100, 5, 50
STRENGTHS = ("weak", "medium", "strong")
Photo = Image.Image
Change = Callable[[Photo, int, random.Random], Photo]
View = Callable[[Tensor], Tensor]  # features to what is compared
PROPERTIES = ("all", "color", "orientation", "position", "focus")
RATES = (0.01, 0.001)  # of queries that find a distractor
SHOTS, EPISODES, NEAREST, COLORS = (1, 5), 50, 10, 8
SMALL = {**NARROW, "stem_stride": 2}  # a narrow ResNet-10
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


class Hashes(nn.Module):
    """Perceptual hashes of gray images, 64 bits each, as -1 and 1."""

    KINDS: ClassVar = {"pHash": imagehash.phash, "dHash": imagehash.dhash}

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """(B, 128)."""
        photos = [to_pil_image(image_CHW) for image_CHW in images_BCHW]
        bits = [[kind(photo).hash.ravel() for kind in self.KINDS.values()] for photo in photos]
        return torch.from_numpy(2.0 * np.stack([np.concatenate(each) for each in bits]) - 1).float()


class Outputs(nn.Module):
    """All depths of an encoder, and behind them the embedding of a run: (B, F) or (B, F + D).

    Args:
        encoder: What `ENCODER` names.
        size: Side of its views.
        embedding: Of the run.
    """

    def __init__(self, encoder: nn.Module, size: int, embedding: Embedding | None = None) -> None:
        super().__init__()
        self.depths = Depths(encoder, size)
        self.embedding = embedding
        self.size = size

    def forward(self, images_BCHW: Tensor) -> Tensor:
        depths_BF = self.depths(images_BCHW)
        if self.embedding is None:
            return depths_BF
        return torch.cat([depths_BF, self.embedding(images_BCHW)], dim=1)


def opened(options: argparse.Namespace) -> Outputs:
    """What `ENCODER` names."""
    size = options.size
    kind, _, rest = options.encoder.partition(":")
    if kind == "imagehash":
        return Outputs(Hashes(), size)
    if kind == "akamaster":
        state, _ = published_weights(Path(options.weights), int(rest))
        network = resnet(int(rest), len(state["linear.bias"]))
        network.load_state_dict(state)
        network.linear = nn.Identity()
        return Outputs(nn.Sequential(Normalize(*IMAGENET), network), size)
    if kind == "untrained":
        torch.manual_seed(int(rest))
        return Outputs(Encoder(EncoderConfig(**SMALL), size), size)
    if kind in RECIPES:
        run = options.cache / f"{kind}-{rest}"
        config = mast.configure(
            kind, options.photos, size=size, views="mast5", encoder=SMALL, epochs=3,
            batch_size=64, optimizer={"lr": 0.015}, seed=int(rest), out=str(run),
        )  # fmt: skip
        mast.pretrain(config)
        return Outputs(mast.load_encoder(run), size, mast.load_embedding(run))
    return Outputs(load(options.encoder, size, options.weights, True).module, size)


class Features:
    """Features of an encoder, kept in files.

    Args:
        seen: The encoder.
        folder: Of the files.
    """

    def __init__(self, seen: Outputs, folder: Path) -> None:
        self.seen = seen
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
        size, compute = self.seen.size, Compute("cpu")
        return self(name, lambda: extract(self.seen, canvases, size, compute, None))

    def moved(self, name: str, canvases: CanvasSet) -> dict[str, Tensor]:
        """Of their copies by each operator, as `mast adapt` makes them."""
        size, compute, found = self.seen.size, Compute("cpu"), {}
        for at, operator in enumerate(operators_for(3)):
            drawn = STRONGER.get(operator, {})
            change = changed_by(operator, None, size, len(canvases), at, **drawn)
            found[operator] = self(
                f"{name}-{operator}",
                partial(extract, self.seen, canvases, size, compute, change),
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
                parts.append(self.seen(mast.open_images(copies, self.seen.size)))
            return torch.cat(parts)

        return self(f"{name}-{strength}", found)


class PhotoSet:
    """The photos of a folder, in an order drawn once: the first half to learn from.

    Args:
        name: In the results.
        folder: With a subfolder per class.
        features: Where its features are kept.
        most: Photos.
        looked_at: Of them, to find subspaces.
    """

    def __init__(
        self, name: str, folder: Path, features: Features, most: int = PHOTOS,
        looked_at: int = LOOKED_AT,
    ) -> None:  # fmt: skip
        config = DataConfig(str(folder))
        canvases = open_canvas(config, features.seen.size, model=features.seen.depths)
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

    def subspaces(self, first: int, count: int, embedding: bool = False) -> Subspaces:
        """Of some of those that are looked at: of all depths, or of a run's embedding."""
        looked_at, part = range(self.looked_at), slice(first, first + count)
        moved = self.features.moved(self.name, self.canvases.part(looked_at, self.name))
        plain_NF, widths = self.plain()[part], self.features.seen.depths.widths
        axes = slice(sum(widths), None) if embedding else slice(sum(widths))
        widths = (plain_NF.shape[1] - sum(widths),) if embedding else widths
        some = {name: values[part, axes] for name, values in moved.items()}
        return Subspaces.of(plain_NF[:, axes], some, widths)

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


def whitened(gallery_NF: Tensor) -> View:
    """PCA-whitening by what is searched."""
    axes = min(WHITENED, gallery_NF.shape[1])
    pca = PCA(axes, whiten=True, svd_solver="randomized", random_state=0)
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
    hit = hits(photos, others, torch.cat(changed))
    found = {name: hit_CN.mean(dim=0).numpy() for name, hit_CN in hit.items()}
    strong_CN = hit["first"][len(STRENGTHS) - 1 :: len(STRENGTHS)]
    for change, hit_N in zip(CHANGES, strong_CN, strict=True):
        found[f"{change} first"] = hit_N.numpy()
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


def interval(draws: list[np.ndarray]) -> list[float]:
    """The mean of photos (of episodes), half of its 95 % interval, and the deviation of draws."""
    each = np.mean(draws, axis=0)
    half = float(student.ppf(0.975, len(each) - 1) * each.std(ddof=1) / len(each) ** 0.5)
    spread = float(np.std([draw.mean() for draw in draws], ddof=1)) if len(draws) > 1 else 0.0
    return [round(value, 2) for value in (float(each.mean()), half, spread)]


def trained(embedding: Embedding) -> dict[str, SearchSpace]:
    """The spaces of what a run trained: its embedding, without blocks, blocks alone, heads."""
    spaces = {"trained: whole embedding": SearchSpace("embedding")}

    def weighted(**choice: str) -> SearchSpace:
        weight_D = embedding.weights(**choice)
        assert weight_D is not None
        return SearchSpace("embedding", weight_D.mul)

    if embedding.masks() is not None:
        for kind in ("all", "color"):
            spaces[f"trained: ignore {kind}"] = weighted(ignore=kind)
        spaces["trained: match color, block"] = weighted(match="color")
    if weights := head_weights(embedding):
        names = named_operators("color", embedding.operators or embedding.trained_with)
        spaces["trained: match color, heads"] = space_of_heads(weights, names)
    return spaces


def _behind(space: View, count: int, features_NF: Tensor) -> Tensor:
    return space(features_NF[:, count:])


def _trained(space: SearchSpace, count: int, last: slice, features_NF: Tensor) -> Tensor:
    part = last if space.of == "representation" else slice(count, None)
    return space.seen(features_NF[:, part])


def ways(
    sets: Mapping[str, PhotoSet], searched: Sequence[str], photos: PhotoSet, other_MF: Tensor
) -> Iterator[tuple[str, list[dict[str, View]]]]:
    """Each way to compare photos: of each draw of subspaces the space for each set.

    Args:
        sets: By name.
        searched: Those of which subspaces of their own are used, too.
        photos: Whose subspaces are used for all, in draws.
        other_MF: Features of distractors.
    """

    def alike(*draws: View) -> list[dict[str, View]]:
        return [dict.fromkeys(sets, seen) for seen in draws]

    seen = photos.features.seen
    if isinstance(seen.depths.encoder, Hashes):
        for at, kind in enumerate(Hashes.KINDS):
            yield kind, alike(itemgetter((slice(None), slice(64 * at, 64 * (at + 1)))))
        return
    count = seen.depths.dim
    last = slice(count - seen.depths.widths[-1], count)
    gallery_NF = torch.cat([*(each.plain() for each in sets.values()), other_MF[:GALLERY]])
    white = whitened(gallery_NF[:, last])
    yield "last map", alike(lambda x: x[:, last])
    yield "last map, whitened", alike(lambda x: white(x[:, last]))
    if seen.embedding is not None:
        for way, space in trained(seen.embedding).items():
            yield way, alike(partial(_trained, space, count, last))
        of_it = [photos.subspaces(at, LOOKED_AT, True)
                 for at in range(0, photos.looked_at, LOOKED_AT)]  # fmt: skip
        for kind in ("all", "color"):
            names = named_operators(kind, tuple(of_it[0].factors))
            spaces = [each.ignoring(names) for each in of_it]
            yield (
                f"embedding, ignore {kind}",
                alike(*(partial(_behind, each, count) for each in spaces)),
            )

    def of_depths(space: View) -> View:
        return lambda x: space(x[:, :count])

    draws = [photos.subspaces(at, LOOKED_AT) for at in range(0, photos.looked_at, LOOKED_AT)]
    scaled, every = of_depths(draws[0].ignoring(())), tuple(draws[0].factors)
    all_white = whitened(scaled(gallery_NF))
    yield "all depths", alike(scaled)
    yield "all depths, whitened", alike(lambda x: all_white(scaled(x)))
    for kind in PROPERTIES:
        names = named_operators(kind, every)
        yield f"ignore {kind}", alike(*(of_depths(each.ignoring(names)) for each in draws))
    names = named_operators("color", every)
    yield "match color", alike(*(of_depths(each.matching(names)) for each in draws))
    whole = photos.subspaces(0, photos.looked_at)
    yield f"ignore all, {photos.looked_at} photos", alike(of_depths(whole.ignoring(every)))
    own = {name: sets[name].subspaces(0, LOOKED_AT) for name in searched}
    yield (
        "ignore all, photos of its own",
        [{name: of_depths(each.ignoring(tuple(each.factors))) for name, each in own.items()}],
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


def open_sets(
    options: argparse.Namespace, seen: Outputs
) -> tuple[dict[str, PhotoSet], PhotoSet, PhotoSet]:
    """The sets, the photos that are looked at, and the distractors."""
    name = options.encoder.replace("/", "-").replace(":", "-")
    features = Features(seen, options.cache / f"{name}-{options.size}")
    sets = {}
    for each in (*options.copies, *options.classes):
        name, _, folder = each.partition("=")
        sets[name] = PhotoSet(name, Path(folder), features)
    looked_at = "-".join(options.photos.parts[-2:])
    photos = PhotoSet(looked_at, options.photos, features, PHOTOS, DRAWS * LOOKED_AT)
    return sets, photos, PhotoSet("distractors", options.distractors, features, 50_000)


def main() -> None:
    options = arguments(__doc__).parse_args()
    sets, photos, distractors = open_sets(options, opened(options).eval())
    searched = [each.partition("=")[0] for each in options.copies]
    rows: dict[str, dict[str, dict[str, list[float]]]] = {name: {} for name in sets}
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
    setting = {
        "encoder": options.encoder,
        "weights": Path(options.weights).name if options.weights else None,
        "size": options.size,
        "photos": "/".join(options.photos.parts[-2:]),
        "distractors": len(distractors.files),
        "sets": {name: len(each.files) for name, each in sets.items()},
    }
    report_setting(RESULT, setting, rows)


if __name__ == "__main__":
    main()
