"""Pages of files and tiles of scenes as separate images, and excluded images.

A page is named `scan.tif#12`, counted from 1; a tile by its left and upper edge in pixels,
`scene.tif@x512y256`; a tile of a page `scan.tif#12@x512y256`.

Legend: N pieces, F files, S scenes, which are pages of files.
"""

import hashlib
import logging
import os
import re
import threading
from concurrent.futures import Future
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast, final, get_args

import numpy as np

from mast.core.display import track
from mast.core.errors import UserError, unknown
from mast.core.fields import check_within
from mast.core.files import cells, named, read_text, spelling
from mast.core.launch import cores
from mast.data.decode import BrokenImageError, Opened, upright, upright_size
from mast.data.formats import Bands, page_numbers
from mast.data.pixels import decode_in_order
from mast.data.source import Pages, Source

VERSION = 3  # version of the cutting
CACHED_PIXELS = 300_000_000  # 1.2 GB in Pillow; a single scene may exceed it
# A tile stays below Pillow's bound.
_LIMITS = {"tile": "[1, 8192]", "stride": "[1, 2147483648]", "max_pixels": "[1, 1e15]"}
_OPTION = r"(?:groups=.+|exclude=[^#,=]+|\w+=[^#,=/]*)"
_SUFFIX = re.compile(rf"(.*)#({_OPTION}(?:,{_OPTION})*)")
_TEXTS = ("pages", "exclude", "groups")
_PLACE = re.compile(r"(#\d+)?(@x\d+y\d+)?$")  # after the name of a file
_log = logging.getLogger("mast")


@final
@dataclass(frozen=True)
class TilingConfig:
    """How files are cut into images; other attributes as in `DataConfig`.

    Attributes:
        groups: Units that no split divides, such as a patient, video or place: a column of a list,
            a level of subfolders from 1, or a regular expression on the path with one group. By
            default, files.
    """

    pages: Pages = "first"
    tile: int | None = None
    stride: int | None = None
    max_pixels: int | None = None
    exclude: str | Path | None = None
    groups: str | None = None

    def __post_init__(self) -> None:
        if self.pages not in get_args(Pages):
            raise UserError(f"pages: expected {' or '.join(get_args(Pages))}, got {self.pages!r}")
        check_within(vars(self), _LIMITS)
        if self.stride is not None and self.tile is None:
            raise UserError(f"stride: expected tile with it, got only stride {self.stride}")

    @property
    def suffix(self) -> str:
        """The options as part of a set's name, as `#tile=256`; empty for defaults."""
        options = [
            f"{field.name}={value}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]
        return f"#{','.join(options)}" if options else ""


def split_cut(spec: str) -> tuple[str, TilingConfig]:
    """Split a name and its options, such as `#tile=256,stride=128`."""
    found = _SUFFIX.fullmatch(spec)
    if found is None or os.path.exists(named(spec)):
        return spec, TilingConfig()
    options = dict[str, Any]()
    for each in re.split(r",(?=\w+=)", found[2]):
        name, _, value = each.partition("=")
        if name not in TilingConfig.__dataclass_fields__:
            raise unknown(f"option of {found[1]}", name, tuple(TilingConfig.__dataclass_fields__))
        try:
            options[name] = value if name in _TEXTS else int(value)
        except ValueError as error:
            raise UserError(f"{spec}: {name}: expected a whole number, got {value!r}") from error
    return found[1], TilingConfig(**options)


def file_of(identifier: str) -> str:
    """The file name of an image or of a piece of one."""
    return _PLACE.sub("", identifier)


def in_pieces(source: Source, cut: TilingConfig) -> Source:
    """A source of pages and tiles; the source itself if images are whole.

    Args:
        source: The images; its pixel limit is changed.
        cut: How to cut files into images.
    """
    if not cut.suffix:
        return source
    if isinstance(source, Tiles):
        raise UserError(
            f"{cut.suffix[1:]}: expected after # or as options, got both: {source.name}"
        )
    return Tiles(source, cut)


@final
class Tiles(Source):
    """Pages and tiles of another source's images, with their labels; arguments of `in_pieces`.

    Tiles are ordered row by row. The last tile of a row or column ends at the image's edge; an
    image no larger than a tile is one piece. A scene is decoded once if its tiles are read in
    order, by any number of threads.
    """

    def __init__(self, source: Source, cut: TilingConfig) -> None:
        self.source, self.cut = source, cut
        self.name = source.name + cut.suffix
        self.pages = cut.pages
        source.max_pixels = cut.max_pixels
        self._excluded = ""  # hash of the images left after `exclude`
        self._lock = threading.Lock()
        self._decoded: dict[int, list[Any]] = {}  # future and remaining uses of each scene
        scene_S4, stack_F = self._look()
        self._file_S, self._page_S, self._size_S2 = scene_S4[:, 0], scene_S4[:, 1], scene_S4[:, 2:]
        self._scene_N = np.arange(len(scene_S4))
        self._box_N4 = np.zeros((len(scene_S4), 4), np.int32)
        if cut.tile is not None:
            windows = [self._windows(h, w, cut.tile) for h, w in self._size_S2.tolist()]
            self._scene_N = np.repeat(self._scene_N, [*map(len, windows)])
            self._box_N4 = np.array([box for boxes in windows for box in boxes], np.int32)
        self._keep(np.ones(len(self._scene_N), bool))
        if cut.exclude is not None:
            self._exclude(cut.exclude)
        file_N = self._file_S[self._scene_N]
        self.targets = {task: label_F[file_N] for task, label_F in source.targets.items()}
        self.multilabels = {task: of_FC[file_N] for task, of_FC in source.multilabels.items()}
        self.classes = dict(source.classes)
        if cut.pages == "first":
            _, first_F = np.unique(file_N, return_index=True)
            self.stacks.update(first_F[stack_F[file_N[first_F]]].tolist())

    def __len__(self) -> int:
        return len(self._scene_N)

    @property
    def shared(self) -> bool:
        """Whether an image is cut into several pieces."""
        return bool((self._count_S > 1).any())

    def together(self, index: int) -> range:
        """All pieces of the scene of a piece."""
        scene = self._scene_N[index]
        return range(*np.searchsorted(self._scene_N, [scene, scene + 1]).tolist())

    @property
    def whereabouts(self) -> str:
        return self.source.whereabouts + self.cut.suffix

    def fingerprint(self) -> str:
        said = f"{VERSION} {self.source.fingerprint()} {self.cut.suffix}{self._excluded}"
        return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()

    def path(self, index: int) -> Path | None:
        return self.source.path(int(self._file_S[self._scene_N[index]]))

    def identifier(self, index: int) -> str:
        scene = self._scene_N[index]
        file, page = int(self._file_S[scene]), int(self._page_S[scene])
        several = page > 0 or file in self._file_S[scene + 1 : scene + 2]
        box = self._box(index)
        return (
            self.source.identifier(file)
            + (f"#{page + 1}" if several else "")
            + (f"@x{box[0]}y{box[1]}" if box else "")
        )

    def size(self, index: int) -> tuple[int, int]:
        scene, box = self._scene_N[index], self._box(index)
        if box:
            return box[3] - box[1], box[2] - box[0]
        height, width = map(int, self._size_S2[scene])
        return (height, width) if height else self.source.size(int(self._file_S[scene]))

    def open(self, index: int, page: int = 0) -> Opened:
        """A piece, or a whole image that is not decoded yet."""
        scene, box = int(self._scene_N[index]), self._box(index)
        if box is None:
            return self.source.open(int(self._file_S[scene]), int(self._page_S[scene]))
        return self._scene(scene).crop(box)

    def _windows(self, height: int, width: int, tile: int) -> list[tuple[int, int, int, int]]:
        """Left, top, right and bottom of the tiles of a scene; zeros for a whole scene."""
        if max(height, width) <= tile:
            return [(0, 0, 0, 0)]
        stride = self.cut.stride or tile

        def starts(length: int) -> list[int]:
            last = max(length - tile, 0)
            return [*range(0, last, stride), last]

        return [
            (left, top, min(left + tile, width), min(top + tile, height))
            for top in starts(height)
            for left in starts(width)
        ]

    def _box(self, index: int) -> tuple[int, int, int, int] | None:
        """The window of a tile; None for a whole image."""
        left, top, right, bottom = self._box_N4[index].tolist()
        return (left, top, right, bottom) if right else None

    # -------------------------------------------------------------------------- decoded once

    def _scene(self, scene: int) -> Opened:
        """A scene, decoded once for all remaining tiles by the first thread that needs it."""
        ours = None
        with self._lock:
            if scene not in self._decoded:
                ours = scene
                while self._decoded and not self._fits(scene):
                    del self._decoded[next(iter(self._decoded))]
            elif not self._decoded[scene][0].done():
                after = max(self._decoded) + 1
                cut = after < len(self._count_S) and self._count_S[after] > 1
                ours = after if cut and self._fits(after) else None
            if ours is not None:
                self._decoded[ours] = [Future(), int(self._count_S[ours])]
                decoding = self._decoded[ours][0]
            entry = self._decoded[scene]
            entry[1] -= 1
            if not entry[1]:
                del self._decoded[scene]
        if ours is not None:
            try:
                decoding.set_result(self._decode(ours))
            except BaseException as error:
                if isinstance(error, UserError) or not isinstance(error, Exception):
                    self._decoded.pop(ours, None)  # a later attempt may succeed
                decoding.set_exception(error)
        return cast(Opened, entry[0].result())

    def _fits(self, scene: int) -> bool:
        """Whether another scene fits into memory."""
        return int(self._size_S2[[*self._decoded, scene]].prod(1).sum()) <= CACHED_PIXELS

    def _decode(self, scene: int) -> Opened:
        with self.source.open(int(self._file_S[scene]), int(self._page_S[scene])) as image:
            whole = upright(image)
        if [*whole.size[::-1]] != self._size_S2[scene].tolist():
            raise ValueError("its size changed since the set was opened")
        return whole

    # ------------------------------------------------------------------------- where they lie

    def _look(self) -> tuple[np.ndarray, np.ndarray]:
        """File, page, height and width of every scene (S, 4), and the files with skipped pages.

        Height and width are 0 if not needed.
        """
        count = len(self.source)
        if self.cut.pages == "first" and not self.cut.tile:  # every file is a scene
            scene_S4 = np.zeros((count, 4), np.int64)
            scene_S4[:, 0] = np.arange(count)
            return scene_S4, np.zeros(count, bool)
        looked = decode_in_order(self._sizes, range(count), cores())
        scenes, stack_F = list[tuple[int, int, int, int]](), np.zeros(count, bool)
        for file, found in enumerate(track(looked, f"opening {self.name}", count, "images")):
            assert not isinstance(found, BrokenImageError)
            stack_F[file], sizes = found
            scenes += [(file, page, height, width) for page, (width, height) in sizes.items()]
        return np.array(scenes, np.int64), stack_F

    def _sizes(self, file: int) -> tuple[bool, dict[int, tuple[int, int]]]:
        """Whether pages of a file are skipped, and the sizes of the others."""
        try:
            with self.source.open(file) as image:
                numbers, sizes = page_numbers(image), {0: upright_size(image)}
                if self.cut.pages == "first":
                    return len(numbers) > 1, sizes
                for page in filter(None, numbers):
                    if isinstance(image, Bands):
                        with self.source.open(file, page) as other:
                            sizes[page] = upright_size(other)
                    else:
                        if image.format == "TIFF":  # the frames of others are of one size
                            image.seek(page)
                        sizes[page] = upright_size(image)
                return False, sizes
        except UserError:  # a store that fails
            raise
        except Exception:  # a broken image; decoding it reports it
            return False, {0: (0, 0)}

    def _keep(self, kept_N: np.ndarray) -> None:
        """Restrict to some pieces."""
        self._box_N4, self._scene_N = self._box_N4[kept_N], self._scene_N[kept_N]
        self._count_S = np.bincount(self._scene_N, minlength=len(self._file_S))

    def _exclude(self, exclude: str | Path) -> None:
        """Exclude images listed in a file; warns about unknown names."""
        lines = read_text(named(exclude)).replace("\r\n", "\n").split("\n")
        names = {name for name in lines if name.strip()}
        line_of = {
            spelling(way): name
            for name in names
            for cell in cells(name)
            for way in (cell, os.path.abspath(os.path.expanduser(cell)))
        }
        root, met = os.path.abspath(named(self.source.name)), list[str | None]()
        for index in range(len(self)):
            own = self.identifier(index)
            ways = (own, file_of(own), os.path.join(root, own), os.path.join(root, file_of(own)))
            met.append(next(filter(None, (line_of.get(spelling(way)) for way in ways)), None))
        if unmet := sorted(names - set(met)):
            _log.warning(
                "exclude: %d of the %d names in %s are not images of %s: %s",
                len(unmet), len(names), exclude, self.source.name, ", ".join(unmet[:3]),
            )  # fmt: skip
        kept_N = np.array([line is None for line in met])
        if not kept_N.any():
            raise UserError(f"exclude: {exclude} leaves no image of {self.source.name}")
        self._keep(kept_N)
        self._excluded = hashlib.blake2b(np.packbits(kept_N).tobytes(), digest_size=16).hexdigest()
