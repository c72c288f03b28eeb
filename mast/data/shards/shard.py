"""One shard, a tar of WebDataset or a Parquet file, read from its beginning to its end.

A sample of a tar is what has one name but for the ending: an image, and perhaps `.cls` with the
number of its class and `.json` with what is known of it. Of a Parquet file the first column of
images is taken (a struct with `bytes`, as Hugging Face writes it, or bytes), and `label` or `cls`.
Files are opened by fsspec, wherever they are.
"""

import io
import json
import logging
import math
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from mast.core.errors import UserError
from mast.data.decode import BrokenImageError, extensions, open_image, to_canvas

_log = logging.getLogger("mast")

WAITS_S = (1.0, 2.0, 4.0, 8.0, 16.0)  # before each further try to read a shard
BLOCK = 2**23  # bytes that are asked of a store at a time
BUFFER = 2**17  # bytes that are read of a file at a time
LABELS = ("cls", "label")
IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp")  # what columns of bytes are called
META = re.compile(r"__[^/]*__($|/)")  # members that are no samples, as WebDataset has it
CANVAS = "canvas."  # how the ending of a canvas begins, in shards that `mast shard` wrote


class Sample(NamedTuple):
    """What a shard holds of an image.

    Attributes:
        key: Its name.
        image: The encoded file.
        label: Number of its class; -1 where there is none, or what there is is no number.
        aspect: Width / height of the original, where the image is a canvas; None: it is whole.
    """

    key: str
    image: bytes
    label: int = -1
    aspect: float | None = None

    def canvas(self, size: int) -> tuple[np.ndarray, float]:
        """As `Source.canvas`.

        Raises:
            BrokenImageError: It cannot be decoded.
        """
        try:
            with open_image(io.BytesIO(self.image)) as image:
                canvas_HWC, aspect = to_canvas(image, size)
        except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
            raise BrokenImageError.of(self.key, error) from error
        return canvas_HWC, aspect if self.aspect is None else self.aspect


@final
@dataclass(frozen=True)
class Shard:
    """A file of samples.

    Args:
        url: Where it is, with its protocol where it is not on this machine.
        count: How many samples it has.
        size: Its bytes.
    """

    url: str
    count: int
    size: int

    def samples(self, offset_N: np.ndarray) -> Generator[Sample, None, None]:
        """Some of the samples.

        Args:
            offset_N: Their numbers in the shard, in rising order.

        Raises:
            UserError: It cannot be read, or has fewer samples than were counted.
        """
        wanted, last = set(offset_N.tolist()), int(offset_N.max(initial=-1))
        number = -1
        try:
            with closing(read_samples(self.url, int(offset_N.min(initial=0)))) as samples:
                while number < last:
                    number, sample = next(samples)
                    if number in wanted:
                        yield sample
        except StopIteration:
            raise UserError(
                f"the shard {self.url} has fewer samples than the {self.count} that were counted: "
                "it changed since the run began"
            ) from None
        except UserError as error:
            raise UserError(reason_of(error)) from error
        except Exception as error:  # each reader raises its own
            raise UserError(f"the shard {self.url} cannot be read: {reason_of(error)}") from error


def read_samples(url: str, first: int) -> Generator[tuple[int, Sample], None, None]:
    """The samples of a file from a number on, each with its number."""
    reading = _parquet if url.endswith(".parquet") else _tar
    with opened(url) as file:
        yield from reading(file, url, first)


def opened(url: str) -> io.BufferedReader:
    """A file wherever it is, which is read again where its store fails."""
    return io.BufferedReader(_Steady(url), BUFFER)


def read_range(url: str, at: int, size: int) -> bytes:
    """Some bytes of a file, and no others.

    Raises:
        UserError: They stay away, or the file ends before.
    """
    parts: list[bytes] = []
    with _Steady(url, cache_type="none") as file:
        file.seek(at)
        while size:
            part = file.read(size)
            if not part:
                raise UserError(f"{url} ends before byte {at + size:,}: it changed")
            parts.append(part)
            at, size = at + len(part), size - len(part)
    return b"".join(parts)


class _Steady(io.RawIOBase):
    """A file that is opened again, with longer and longer waits, where a read fails.

    Reading goes on at the byte that was not read.

    Args:
        url: Where it is.
        how: Further options of its store.

    Raises:
        UserError: It stays away.
    """

    def __init__(self, url: str, **how: Any) -> None:
        self.url = url
        self.how = how
        self._file: Any = None
        self._at = 0
        self._retried(lambda file: None)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            offset += self._retried(lambda file: file.seek(0, io.SEEK_END))
        self._at = offset + (self._at if whence == io.SEEK_CUR else 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        content = self._retried(lambda file: self._read(file, len(buffer)))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)

    def _read(self, file: Any, count: int) -> bytes:
        content: bytes = file.read(count)
        size = getattr(file, "size", None)
        if not content and count and size is not None and self._at < size:
            raise EOFError(f"it ends at byte {self._at:,} of {size:,}")
        return content

    def close(self) -> None:
        self._leave()
        super().close()

    def _retried(self, work: Callable[[Any], Any]) -> Any:
        """Do something with the file, at the place that was reached."""
        waits = iter(WAITS_S)
        while True:
            try:
                if self._file is None:
                    self._file = open_once(self.url, **self.how)
                if self._file.tell() != self._at:
                    self._file.seek(self._at)
                return work(self._file)
            except UserError:
                raise
            except Exception as error:  # each kind of store raises its own
                self._leave()
                wait = next(waits, None)
                if wait is None:
                    raise UserError(
                        f"{self.url} cannot be read, tried {len(WAITS_S) + 1} times in "
                        f"{sum(WAITS_S):.0f} s: {reason_of(error)}"
                    ) from error
                _log.warning("%s: %s; tried again in %g s", self.url, reason_of(error), wait)
                time.sleep(wait)

    def _leave(self) -> None:
        if self._file is not None:
            with suppress(Exception):  # of a store that is gone
                self._file.close()
            self._file = None


def open_once(url: str, **how: Any) -> Any:
    """A file wherever it is; what fails is an error."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url)
    return system.open(path, "rb", **({} if is_local(url) else {"block_size": BLOCK, **how}))


def reason_of(error: Exception) -> str:
    """What a store or a reader raised, in one line; WebDataset adds streams to what was said."""
    said = getattr(error, "strerror", None) or next(iter(error.args), "")
    return " ".join(str(said).split()) or type(error).__name__


def is_local(url: str) -> bool:
    """Whether it is a file of this machine."""
    return "://" not in url or url.startswith(("file://", "local://"))


def _tar(file: Any, url: str, first: int) -> Iterator[tuple[int, Sample]]:
    from webdataset.tariterators import group_by_keys, tar_file_expander

    number = 0
    for parts in group_by_keys(tar_file_expander([{"url": url, "stream": file}])):
        ending = image_of(parts)
        if ending is None:
            continue
        if number >= first:
            aspect = aspect_of(parts.get("json")) if ending.startswith(CANVAS) else None
            yield (
                number,
                Sample(parts["__key__"], parts[ending], label_of(parts.get("cls")), aspect),
            )
        number += 1


def aspect_of(known: bytes | None) -> float | None:
    """Of the original of a canvas; None where nothing says it, and the image is whole."""
    try:
        aspect = float(json.loads(known or b"")["aspect"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return aspect if 0 < aspect < math.inf else None


def label_of(written: Any) -> int:
    """The number of a class, of whatever a set has in its place."""
    try:
        label = int(written)
    except (TypeError, ValueError, OverflowError):
        return -1
    return label if 0 <= label < 2**63 else -1


def image_of(endings: Any) -> str | None:
    """Which of the endings of a sample is its image: canvases come first."""
    known = [ending.removeprefix(".") for ending in extensions()]
    for prefix in (CANVAS, ""):
        for ending in known:
            if prefix + ending in endings:
                return prefix + ending
    return None


def _parquet(file: Any, url: str, first: int) -> Iterator[tuple[int, Sample]]:
    parquet, image, label = open_parquet(file, url)
    begin = 0
    groups = []
    for group in range(parquet.num_row_groups):
        rows = parquet.metadata.row_group(group).num_rows
        if begin + rows > first:
            groups.append((begin, group))
        begin += rows
    if not groups:
        return
    number = groups[0][0]
    columns = [image] + [label] * (label is not None)
    for batch in parquet.iter_batches(64, [group for _, group in groups], columns):
        for row in batch.to_pylist():
            if number >= first:
                own = None if label is None else row[label]
                yield number, Sample(f"{url}#{number}", _content(row[image]), label_of(own))
            number += 1


def read_rows(url: str, at: int) -> tuple[int, list[bytes]]:
    """The images of the row group of a Parquet file that has a row, and its first row."""
    with opened(url) as file:
        parquet, image, _ = open_parquet(file, url)
        first, group = 0, 0
        while at >= first + parquet.metadata.row_group(group).num_rows:
            first += parquet.metadata.row_group(group).num_rows
            group += 1
        rows = parquet.read_row_group(group, [image]).column(image).to_pylist()
    return first, [_content(row) for row in rows]


def _content(row: Any) -> bytes:
    """The encoded file of a cell, which is bytes or a struct with them; empty where it is null."""
    content: bytes | None = row["bytes"] if isinstance(row, dict) else row
    return content or b""


def open_parquet(file: Any, url: str) -> tuple[Any, str, str | None]:
    """A Parquet file, its column of images, and that of labels if it has one.

    Raises:
        UserError: It has no column of images.
    """
    import pyarrow
    from pyarrow.parquet import ParquetFile

    parquet = ParquetFile(file)
    schema, kinds = parquet.schema_arrow, pyarrow.types
    structs = [
        field.name
        for field in schema
        if kinds.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
    ]
    plain = [
        field.name
        for field in schema
        if kinds.is_binary(field.type) or kinds.is_large_binary(field.type)
    ]
    images = [*structs, *(name for name in plain if name.lower() in IMAGES), *plain]
    if not images:
        raise UserError(
            f"the shard {url} has no column of images, of bytes or of a struct with bytes, among "
            f"{', '.join(schema.names)}"
        )
    return parquet, images[0], next((name for name in LABELS if name in schema.names), None)
