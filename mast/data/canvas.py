"""Canvases: every image of a set, shrunk once to uint8, in one file.

A canvas is the whole image with its aspect ratio, shrunk to a limit of pixels; smaller images are
unchanged. Values are uint8 in 0 to 255.

Legend: N images, B batch, L classes of a task, T numbers of all canvases.
"""

import functools
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import torch
from torch import Tensor, nn

from mast.core.canvases import Canvases
from mast.core.display import doing
from mast.core.errors import UserError
from mast.core.fields import check_numbers, check_within
from mast.core.files import default_cache, named
from mast.core.launch import cores
from mast.core.reading import MOST_CHANNELS, Reading
from mast.data import cache
from mast.data.cache import TestViews
from mast.data.decode import Opened, read_image, to_canvas, to_test_view
from mast.data.groups import group_names
from mast.data.hashes import perceptual_hashes, pixel_digest
from mast.data.pieces import Tiles, TilingConfig, file_of, in_pieces, split_cut
from mast.data.pixels import Pixels, as_sheets, lengths
from mast.data.ranges import find_reading
from mast.data.registry import open_source
from mast.data.source import Pages, Source, sampled, warn_of_stacks
from mast.data.store import Facts, key_of

LARGEST = 16_384  # side of a square with the most pixels of a canvas, 805 MB
PER_VIEW = 2.75  # sides of a view
_AT_ONCE = 256  # canvases to decode at a time
_COPIED = 200_000_000  # bytes of canvases to copy to a device at a time


@dataclass
class DataConfig:
    """Which images to use, and how to cache them.

    Attributes:
        spec: A folder (flat, or with one subfolder per class), `factors` (generated images),
            `factors@test`, `factors@train:4096`, the same of `toys`, `torchvision:CIFAR10@train`,
            `hf:owner/name@split`, `shards:FOLDER` or `shards:s3://bucket/train-*.tar`; `#photo`
            after a Hub dataset names the image column.
        canvas: Images with more pixels than a square of this side are shrunk once to that many,
            keeping their aspect ratio; 2.75 times the view size by default.
        channels: Channels of an image, 1 to 16; for 3, gray is repeated.
        range: File values that become 0 and 1: two numbers; "dtype", the limits of the type;
            "percentile", the 0.1st and 99.9th of each channel in a sample of the set; or "auto",
            the fewest bits or the usual float range that hold the sample, otherwise percentiles.
            In sets with deeper files, 8-bit files map 0 to 255.
        no_data: A value that means "no data" and becomes 0, in addition to those that files
            declare.
        cache: Folder for the resized images; `$XDG_CACHE_HOME/mast` or `~/.cache/mast` by
            default.
        cache_limit_gb: Size in GB above which images are decoded for every batch, not cached.
        resident_gb: Size in GB up to which a cached set is copied into the memory of every GPU; by
            default a quarter of its free memory, 0 for never.
        max_broken: Largest share of broken files; they are listed and skipped.
        workers: Decoding threads; by default the cores, split among processes.
        shuffle: Shuffle buffer for shards: number of encoded images in memory, over all
            processes.
        download: Allow downloading sets and weights.
        root: Folder of torchvision and Hugging Face sets; inside `cache` by default.
        pages: Which pages or frames of a file become images: the "first" or "all".
        tile: Larger images are cut into square tiles of this side, each an image.
        stride: Pixels from one tile to the next; `tile` by default.
        max_pixels: The most pixels a file may have; by default 179 million, beyond which it counts
            as a decompression bomb.
        exclude: A text file with the name or path of each image to leave out, one per line, as
            `mast duplicates --list` writes it.
    """

    spec: str = "factors"
    canvas: int | None = None
    channels: int = 3
    range: tuple[float | str, ...] = ("auto",)
    no_data: float | None = None
    cache: str | Path | None = None
    cache_limit_gb: float = 32.0
    resident_gb: float | None = None
    max_broken: float = 0.01
    workers: int | None = None
    shuffle: int = 8192
    download: bool = False
    root: str | Path | None = None
    pages: Pages = "first"
    tile: int | None = None
    stride: int | None = None
    max_pixels: int | None = None
    exclude: str | Path | None = None

    def find_reading(self, name: str, images: Iterable[Opened]) -> Reading:
        """Find the mapping of values from a sample of images."""
        return find_reading(name, images, self.range, self.channels, self.no_data)

    def __post_init__(self) -> None:
        self.spec = os.fspath(self.spec)
        sizes = {"canvas": f"[1, {LARGEST}]", "channels": f"[1, {MOST_CHANNELS}]"}
        limits = {**sizes, "workers": "[1, inf)", "shuffle": "[1, inf)", "max_broken": "[0, 1]"}
        check_within(vars(self), limits, "data.")
        numbers = [each for each in self.range if not isinstance(each, str)]
        named = self.range in (("auto",), ("dtype",), ("percentile",))
        if not named and not (len(numbers) == len(self.range) == 2 and numbers[0] < numbers[1]):
            raise UserError(
                f"data.range: expected auto, dtype, percentile or two increasing numbers, such as "
                f"0 4095, got {' '.join(map(str, self.range))}"
            )
        check_numbers({"data.range": tuple(self.range), "data.no_data": self.no_data})
        try:
            self.cut  # noqa: B018  # is checked
        except UserError as error:
            raise UserError(f"data.{error}") from error

    @property
    def cut(self) -> TilingConfig:
        """How files are cut into images."""
        return TilingConfig(self.pages, self.tile, self.stride, self.max_pixels, self.exclude)


def canvas_size(view_size: int) -> int:
    """Side of a square with the pixels of a canvas, for views of a side in pixels.

    With 2.75 times the view, training crops and test views have at least 97 % of the gradient
    energy of those from originals, for aspect ratios up to 4:1 (`benchmarks/canvas.py`).
    """
    return min(round(PER_VIEW * view_size), LARGEST)


@final
@dataclass(frozen=True)
class CanvasSet:
    """A set of canvases with names and labels.

    Attributes:
        name: The user's name of the set.
        pixels: The canvases: in memory, in a file (verified when read), decoded on demand, or a
            subset of another set's.
        aspect_N: (N,) float32, width / height of the original.
        targets: Label arrays, each (N,) int64, by task; empty without labels.
        classes: Class names by task of `targets` and `multilabels`.
        identifiers: A name for each image: a relative path or an index.
        fingerprint: Hash of canvases and labels, equal on all machines.
        skipped: Reason by name of every broken file that was skipped.
        multilabels: Label arrays of tasks in which an image has several classes or none, each
            (N, L) int8, by task: 1 present, 0 absent, -1 unknown.
        test_views: Central views of the whole images; None if they are cut from the canvases.
        reading: Mapping of file values to pixels.
        own_keys: Cache key of each image, if it is known by its content.
        facts: Facts of each image, if `open_photos` opened it.
        stacks: Names of images that are the first of several pages or frames of a file.
        groups: Group of each image, if not its file.
        source: The source, if opened by name.
        index_N: Indices in the source.
    """

    name: str
    pixels: Pixels
    aspect_N: np.ndarray
    targets: dict[str, np.ndarray]
    classes: dict[str, tuple[str, ...]]
    identifiers: Sequence[str]
    fingerprint: str
    skipped: dict[str, str] = field(default_factory=dict)
    multilabels: Mapping[str, np.ndarray] = field(default_factory=dict)
    test_views: TestViews | None = None
    reading: Reading = field(default_factory=Reading)
    own_keys: Sequence[bytes] = ()
    facts: Sequence[Facts] = ()
    stacks: Collection[str] = ()
    groups: Sequence[str] | None = None
    source: Source | None = None
    index_N: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.identifiers)

    @functools.cached_property
    def keys(self) -> Sequence[bytes]:
        """Cache keys of the images' features: their own, or from the set and position."""
        return self.own_keys or tuple(key_of(self.fingerprint, at) for at in range(len(self)))

    def file(self, position: int) -> Path | None:
        """The file of an image; None if it has none of its own."""
        if self.source is None or self.index_N is None:
            return None
        return self.source.path(int(self.index_N[position]))

    @functools.cached_property
    def pixel_digests(self) -> Sequence[bytes]:
        """Digest of each canvas; for a file of several frames, of its content."""
        if self.facts:
            return [each.pixels for each in self.facts]
        digests = [pixel_digest(batch.sheets(at).numpy()) for batch, at in self._one_by_one()]
        if self.source is not None and self.index_N is not None:
            for at, (name, index) in enumerate(zip(self.identifiers, self.index_N, strict=True)):
                digests[at] = self.source.digest(index) if name in self.stacks else digests[at]
        return digests

    @functools.cached_property
    def hashes_N8B(self) -> np.ndarray:
        """Perceptual hashes of each image, int8."""
        if self.facts:
            hashes = b"".join(each.hashes for each in self.facts)
            return np.frombuffer(hashes, np.int8).reshape(len(self), 8, -1)
        images = (batch.image(at).numpy() for batch, at in self._one_by_one())
        return np.stack([perceptual_hashes(image_HWC) for image_HWC in images])

    def _one_by_one(self) -> Iterator[tuple[Canvases, int]]:
        """Batches of all canvases, and each image's place in its batch."""
        for start in range(0, len(self), _AT_ONCE):
            batch = self.batch(range(start, min(start + _AT_ONCE, len(self))))
            yield from ((batch, at) for at in range(len(batch)))

    @property
    def units(self) -> list[str]:
        """Names of the groups or files of the images, which no split may divide."""
        return [*(self.groups or map(file_of, self.identifiers))]

    def resident(self, device: torch.device, limit_gb: float) -> Canvases | None:
        """The canvases in a device's memory; None above the limit, or if decoded on demand."""
        if self.pixels.on_demand or self.pixels.nbytes > limit_gb * 1e9:
            return None
        values_T = torch.empty(self.pixels.nbytes, dtype=torch.uint8, device=device)
        layout = self.pixels.layout
        first, largest = 0, int(lengths(self.pixels.size_N2, layout).max())
        step = max(1, _COPIED // largest)
        with doing(f"copying the images to {device}", len(self), "images") as work:
            for start in range(0, len(self), step):
                stop = min(start + step, len(self))
                part = torch.from_numpy(self.pixels.read(np.arange(start, stop)))
                values_T[first : first + len(part)] = part.to(device)
                first += len(part)
                work.update(stop)
        size_N2, aspect_N = map(torch.from_numpy, (self.pixels.size_N2, self.aspect_N))
        return Canvases.packed(values_T, size_N2, aspect_N, layout)

    def with_views(self, size: int) -> "CanvasSet":
        """The same with test views in memory, unless these are cut from canvases."""
        before = self.test_views
        if before is None or (views := before(size)) is None:
            return self
        of_size = views.in_memory()
        return replace(self, test_views=lambda side: of_size if side == size else before(side))

    def subset(self, indices: Sequence[int] | np.ndarray | Tensor) -> "CanvasSet":
        """A subset of the images, in this order, copied into memory."""
        some = self.part(indices)
        return replace(some, pixels=some.pixels.in_memory())

    def part(
        self, indices: Sequence[int] | np.ndarray | Tensor, name: str | None = None
    ) -> "CanvasSet":
        """Like `subset`, but canvases are read on demand."""
        index_B, views = np.asarray(indices, np.int64), self.test_views

        def of_some(size: int) -> Pixels | None:
            pixels = None if views is None else views(size)
            return None if pixels is None else pixels.part(index_B)

        return replace(
            self,
            name=self.name if name is None else name,
            pixels=self.pixels.part(index_B),
            aspect_N=self.aspect_N[index_B],
            targets={task: target_N[index_B] for task, target_N in self.targets.items()},
            identifiers=[self.identifiers[i] for i in index_B],
            fingerprint=hashlib.sha256(self.fingerprint.encode() + index_B.tobytes()).hexdigest(),
            multilabels={task: label_NL[index_B] for task, label_NL in self.multilabels.items()},
            test_views=None if views is None else of_some,
            own_keys=tuple(self.keys[i] for i in index_B),
            facts=tuple(self.facts[i] for i in index_B) if self.facts else (),
            groups=self.groups and tuple(self.groups[i] for i in index_B),
            index_N=None if self.index_N is None else self.index_N[index_B],
        )

    def batch(self, indices: Sequence[int] | np.ndarray | Tensor) -> Canvases:
        """Copy the canvases of (B,) indices."""
        index_B = np.asarray(indices, np.int64)
        if len(index_B) and not 0 <= index_B.min() <= index_B.max() < len(self):
            raise IndexError(f"expected indices below {len(self)}, got {index_B}")
        return Canvases.packed(
            torch.from_numpy(self.pixels.read(index_B)),
            torch.from_numpy(self.pixels.size_N2[index_B]),
            torch.from_numpy(self.aspect_N[index_B]),
            self.pixels.layout,
        )


def find_images(
    config: DataConfig | str | Path,
    view_size: int,
    model: nn.Module | None = None,
    reading: Reading | None = None,
) -> tuple[DataConfig, Source, Reading | None, Callable[[], Reading]]:
    """Configuration and value mapping for a model, the images, and the function to find a mapping.

    Arguments as for `open_canvas`.
    """
    if view_size < 1:
        raise UserError(f"size: expected 1 pixel or more, got {view_size}")
    if isinstance(config, str | Path):
        config = DataConfig(str(config))
    # The first of several: a classifier before its encoder, an encoder before its teacher.
    parts = [] if model is None else model.modules()
    readers = [each for each in parts if isinstance(getattr(each, "reading", 0), Reading | None)]
    for part in readers[:1]:
        learned = cast(Reading | None, part.reading)
        reading = learned if learned and (learned.layout.deep or not reading) else reading
        config = replace(config, channels=cast(int, part.channels))
    with doing(f"looking for the images of {config.spec}"):
        root = named(config.root or cache_of(config) / "downloads")
        source = open_source(config.spec, root, config.download)
        source = in_pieces(source, config.cut)

    def find() -> Reading:
        if reading and reading.layout.deep:
            return reading
        whole = source.source if isinstance(source, Tiles) else source
        found = config.find_reading(source.name, sampled(whole))
        return found if reading is None or found.layout.deep else reading

    return config, source, reading, find


def cache_of(config: DataConfig) -> Path:
    """The cache folder."""
    return default_cache() if config.cache is None else named(config.cache)


def open_canvas(
    config: DataConfig | str | Path,
    view_size: int,
    processes: int = 1,
    model: nn.Module | None = None,
    reading: Reading | None = None,
) -> CanvasSet:
    """Open a set; resizes and caches its images if necessary.

    Args:
        config: What to open; a name or path stands for `DataConfig(spec=…)`.
        view_size: Side in pixels of the views to be cut from the canvases.
        processes: Number of processes that share this machine's cores.
        model: An encoder, or a module with one, whose `channels` and `reading` apply. If it has no
            reading, or one of 8 bits although files have more, a new one is found.
        reading: Used if the model has none: that of the training part of the set.

    Returns:
        The set, in a cache file, or decoded on demand if the file would exceed `cache_limit_gb`.
        Both have the same images, order and pixels.

    Raises:
        UserError: No such set, too many broken files, a full disk, or views without pixels.
    """
    config, source, reading, find = find_images(config, view_size, model, reading)
    side = config.canvas or canvas_size(view_size)
    options = config.range, config.channels, config.no_data
    asked = "" if options == (("auto",), 3, None) else repr(options)
    request = cache.Request(
        source, cache.fingerprint_of(source), side, cache_of(config), config.cache_limit_gb * 1e9,
        config.max_broken, config.workers or max(1, cores() // processes),
        find, asked if reading is None else repr(reading) + asked,
    )  # fmt: skip
    manifest, pixels = cache.obtain(request)
    source.stacks.update(manifest.stacks)

    @functools.cache
    def test_views(size: int) -> Pixels | None:
        area_N, sides_N = manifest.size_N2.prod(1), manifest.size_N2.sum(1)
        shrunk = (area_N + sides_N >= side**2).any()  # an image may be larger than its canvas
        return cache.obtain_test_views(request, manifest, size) if shrunk else None

    return set_of(
        config, source, manifest.index_N, manifest.skipped,
        pixels=pixels, aspect_N=manifest.aspect_N, fingerprint=manifest.content,
        test_views=test_views, reading=manifest.reading,
    )  # fmt: skip


def set_of(
    config: DataConfig,
    source: Source,
    index_N: np.ndarray,
    skipped: Mapping[str, str],
    **known: Any,
) -> CanvasSet:
    """The decodable images of a source, with its metadata; warns about others.

    Other arguments as for `CanvasSet`.
    """
    cache.refuse_too_many(source, skipped, len(index_N), config.max_broken)
    cache.warn_of_broken(source, skipped)
    stacks = [source.identifier(index) for index in sorted(source.stacks)]
    warn_of_stacks(source.name, stacks, len(source))
    groups = split_cut(config.spec)[1].groups
    identifiers = [source.identifier(index) for index in index_N.tolist()]
    return CanvasSet(
        name=config.spec if groups else source.name,
        targets={task: label_N[index_N] for task, label_N in source.targets.items()},
        classes=source.classes,
        identifiers=identifiers,
        skipped=dict(skipped),
        multilabels={task: label_NL[index_N] for task, label_NL in source.multilabels.items()},
        stacks=frozenset(stacks),
        groups=groups and group_names(config.spec, identifiers, groups),
        source=source,
        index_N=index_N,
        **known,
    )


def open_files(
    paths: Sequence[str | Path], view_size: int, reading: Reading | None = None
) -> CanvasSet:
    """Decode image files into an uncached, unlabeled set in memory.

    Args:
        paths: One or more files, which also identify the images.
        view_size: As for `open_canvas`.
        reading: Value mapping of the set to compare with.
    """
    canvases, aspects, views, digest = [], [], [], hashlib.blake2b(digest_size=16)
    canvas = functools.partial(to_canvas, side=canvas_size(view_size), reading=reading)
    view = functools.partial(to_test_view, size=view_size, reading=reading)
    for path in paths:
        canvas_HWC, aspect = read_image(named(path), canvas)
        views.append(as_sheets(read_image(named(path), view)))
        canvases.append(canvas_HWC)
        aspects.append(aspect)
        digest.update(repr((canvas_HWC.shape, aspect)).encode() + canvas_HWC.tobytes())
    reading = reading or Reading()
    of_size = Pixels.of(views, reading.layout)
    return CanvasSet(
        name="files",
        pixels=Pixels.of(canvases, reading.layout),
        aspect_N=np.array(aspects, np.float32),
        targets={},
        classes={},
        identifiers=list(map(str, paths)),
        fingerprint=digest.hexdigest(),
        test_views=lambda size: of_size if size == view_size else None,
        reading=reading,
    )
