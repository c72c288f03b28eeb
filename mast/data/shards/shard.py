"""One shard, a tar of WebDataset or a Parquet file, read from its beginning to its end.

A sample of a tar is what has one name but for the ending: an image, and perhaps `.cls` with the
number of its class and `.json` with what is known of it. Of a Parquet file the column of
images is taken (a struct with `bytes`, as Hugging Face writes it, or bytes), and that of labels.
Files are opened by fsspec, wherever they are.
"""

import io
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count as counting
from typing import Any, NamedTuple, TypeVar, final

import numpy as np

from mast.core.errors import UserError
from mast.core.reading import Reading
from mast.core.threads import wait
from mast.data.decode import Opened, naming, open_image, to_canvas
from mast.data.shards.tar import CANVAS, LARGEST, image_endings, tar_samples
from mast.data.source import IMAGES, image_column, label_column

_log = logging.getLogger("mast")
Answer = TypeVar("Answer")

READERS = 32  # shards that are looked at at a time: a store answers many
WAITS_S = (1.0, 2.0, 4.0, 8.0, 16.0)  # before each further try to read a shard
PATIENCE_S = 30.0  # that a store may take for an answer
BLOCK = 2**23  # bytes that are asked of a store at a time
BUFFER = 2**17  # bytes that are read of a file of this machine at a time
ROWS = 8  # of a Parquet file in memory at a time: a small file can say that large ones are equal
GROUP = 2**32  # bytes of the images of a row group


class Sample(NamedTuple):
    """What a shard holds of an image.

    Attributes:
        key: Its name.
        image: The encoded file.
        label: Number of its class; -1 where there is none.
        aspect: Width / height of the original of a canvas; None where the image is whole.
    """

    key: str
    image: bytes
    label: int = -1
    aspect: float | None = None

    def canvas(
        self,
        side: int,
        reading: Reading | None = None,
        note: Callable[[Opened], object] | None = None,
    ) -> tuple[np.ndarray, float]:
        with naming(lambda: self.key), open_image(io.BytesIO(self.image)) as image:
            if note is not None:
                note(image)
            canvas_HWC, aspect = to_canvas(image, side, reading)
        return canvas_HWC, aspect if self.aspect is None else self.aspect


@final
@dataclass(frozen=True)
class Shard:
    """A file of `count` samples and `size` bytes.

    Args:
        url: Where it is, with its protocol where it is not on this machine.
        column: The column of the images of a Parquet file; by its name if not given.
    """

    url: str
    count: int
    size: int
    column: str | None = None

    def samples(self, offset_N: np.ndarray) -> Generator[Sample, None, None]:
        """Samples by their rising numbers in the shard; UserError if the count is wrong."""
        wanted, last = set(offset_N.tolist()), int(offset_N.max(initial=-1))
        number = -1
        with (
            naming_shard(self.url),
            closing(read_samples(self.url, int(offset_N.min(initial=0)), self.column)) as samples,
        ):
            while number < last:
                number, sample = next(samples, (self.count, None))
                if sample is None:
                    raise miscounted(self.url, "fewer", self.count)
                if number == self.count - 1 and next(samples, None) is not None:
                    raise miscounted(self.url, "more", self.count)
                if number in wanted:
                    yield sample


def miscounted(url: str, how: str, count: int) -> UserError:
    """An error for a shard with "more" or "fewer" samples (`how`) than were counted."""
    return UserError(
        f"the shard {url} has {how} samples than the {count} that were counted: it changed since, "
        "or the index.json beside it is wrong"
    )


@contextmanager
def naming_shard(url: str) -> Iterator[None]:
    """Name the shard in an error from reading it."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each reader raises its own
        raise UserError(f"the shard {url} cannot be read: {reason_of(error)}") from error


def read_samples(
    url: str, first: int, column: str | None = None
) -> Generator[tuple[int, Sample], None, None]:
    """The samples of a file from a number on, each with its number."""
    with opened(url) as file:
        if url.endswith(".parquet"):
            yield from _parquet(file, url, first, column)
        else:
            yield from _tar(file, url, first)


def opened(url: str) -> io.BufferedReader:
    """A file wherever it is; reads that fail are tried again."""
    return io.BufferedReader(_Steady(url), BUFFER if is_local(url) else BLOCK)


def read_range(url: str, at: int, size: int) -> bytes:
    """Some bytes of a file, and no others."""
    with io.BufferedReader(_Steady(url), 1) as file:
        file.seek(at)
        content = file.read(size)
    if len(content) < size:
        raise UserError(f"{url} ends before byte {at + size:,}: it changed")
    return content


class _Steady(io.RawIOBase):
    """A file that is opened again, with longer and longer waits, where a read fails.

    Reading goes on at the byte that was not read.
    """

    def __init__(self, url: str) -> None:
        self.url = url
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
        size = getattr(file, "size", None)
        if size is not None:  # some stores refuse to go beyond it
            count = max(0, min(count, size - self._at))
        content: bytes = file.read(count) if count else b""
        if len(content) > count or (size is not None and count and not content):
            raise EOFError(f"{len(content):,} bytes came at byte {self._at:,} of {size:,}")
        return content

    def close(self) -> None:
        self._leave()
        super().close()

    def _retried(self, work: Callable[[Any], Any]) -> Any:
        """Do something with the file, at the place that was reached."""
        waits, begun = iter(WAITS_S), time.monotonic()
        for tries in counting(1):
            try:
                return self._tried(work)
            except UserError:
                raise
            except Exception as error:  # each kind of store raises its own
                self._leave()
                pause, spent = next(waits, math.inf), time.monotonic() - begun
                if spent + pause > sum(WAITS_S) + PATIENCE_S:
                    raise UserError(
                        f"{self.url} cannot be read, tried {tries} times in {spent:.0f} s: "
                        f"{reason_of(error)}"
                    ) from error
                _log.warning("%s: %s; tried again in %g s", self.url, reason_of(error), pause)
                wait(threading.Event(), pause)
        raise AssertionError

    def _tried(self, work: Callable[[Any], Any]) -> Any:
        if self._file is None:
            self._file = open_once(self.url)
        file, at = self._file, self._at

        def reached() -> Any:
            if file.tell() != at:
                file.seek(at)
            return work(file)

        return answered(self.url, reached)

    def _leave(self) -> None:
        if self._file is not None:
            with suppress(Exception):  # of a store that is gone
                self._file.close()
            self._file = None


def open_once(url: str) -> Any:
    """A file wherever it is; what fails is an error."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url)
    if is_local(url):
        return system.open(path, "rb")
    # what is read is kept by the buffer above
    return answered(url, lambda: system.open(path, "rb", block_size=BLOCK, cache_type="none"))


def answered(url: str, ask: Callable[[], Answer]) -> Answer:
    """What the store of a file answers; some of them wait for minutes."""
    if is_local(url):
        return ask()
    done, answers, errors = threading.Event(), list[Answer](), list[BaseException]()

    def keep() -> None:
        try:
            answers.append(ask())
        except BaseException as error:  # raised where it was asked
            errors.append(error)
        done.set()

    threading.Thread(target=keep, name="mast-store", daemon=True).start()
    if not wait(done, PATIENCE_S):
        raise TimeoutError(f"no answer in {PATIENCE_S:g} s")
    if errors:
        raise errors[0]
    return answers[0]


def reason_of(error: Exception) -> str:
    """What a store or a reader raised, in one line; WebDataset adds streams to what was said."""
    said = getattr(error, "strerror", None) or next(iter(error.args), "")
    return " ".join(str(said).split()) or type(error).__name__


def is_local(url: str) -> bool:
    """Whether it is a file of this machine."""
    return "://" not in url or url.startswith(("file://", "local://"))


def _tar(file: Any, url: str, first: int) -> Iterator[tuple[int, Sample]]:
    wanted = {*image_endings(), "cls", "json"}
    for number, (key, ending, parts) in enumerate(tar_samples(file, url, wanted)):
        if number >= first:
            content = {of: part.content for of, part in parts.items()}
            aspect = aspect_of(content.get("json")) if ending.startswith(CANVAS) else None
            image = content[ending] or b""
            yield number, Sample(key, image, label_of(content.get("cls")), aspect)


def aspect_of(known: bytes | None) -> float | None:
    """Of the original of a canvas; None where nothing says it, and the image is whole."""
    try:
        aspect = float(json.loads(known or b"")["aspect"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return aspect if 1e-6 < aspect < 1e6 else None


def label_of(written: Any) -> int:
    """The number of a class, of whatever a set has in its place."""
    try:
        label = int(written)
    except (TypeError, ValueError, OverflowError):
        return -1
    whole = isinstance(written, str | bytes) or label == written
    return label if whole and 0 <= label < 2**63 else -1


def _parquet(file: Any, url: str, first: int, column: str | None) -> Iterator[tuple[int, Sample]]:
    parquet, image, label = open_parquet(file, url, column)
    number, groups = 0, list[int]()
    for group in range(parquet.num_row_groups):
        rows = parquet.metadata.row_group(group).num_rows
        if groups or number + rows > first:
            groups.append(group)
        else:
            number += rows
    columns = [image] if label is None else [image, label]
    for row in rows_of(parquet, groups, columns) if groups else ():
        if number >= first:
            own = None if label is None else row[label]
            yield number, Sample(f"{url}#{number}", _content(row, image), label_of(own))
        number += 1


def rows_of(
    parquet: Any, groups: Sequence[int], columns: Sequence[str], at_once: int = ROWS
) -> Iterator[dict[str, Any]]:
    """The rows of some row groups, read from this thread, which a signal reaches."""
    for batch in parquet.iter_batches(at_once, groups, columns, use_threads=False):
        yield from batch.to_pylist()


def read_rows(url: str, at: int, column: str | None = None) -> tuple[int, list[bytes]]:
    """The images of the row group of a Parquet file that has a row, and its first row."""
    with opened(url) as file:
        parquet, image, _ = open_parquet(file, url, column)
        first, group = 0, 0
        while at >= first + (count := parquet.metadata.row_group(group).num_rows):
            first, group = first + count, group + 1
        contents, room = list[bytes](), GROUP
        for row in rows_of(parquet, [group], [image]):
            contents.append(_content(row, image))
            room -= len(contents[-1])
            if room < 0:
                raise UserError(
                    f"the shard {url} has more than {GROUP:,} bytes of images in row group "
                    f"{group}, and such a group is read at a time: write it with smaller ones"
                )
        if len(contents) != count:
            raise UserError(f"the shard {url} has {len(contents)} rows in row group {group}, and "
                            f"says that it has {count}")  # fmt: skip
    return first, contents


def _content(row: dict[str, Any], column: str) -> bytes:
    """The encoded file in a row; empty where there is none, or too much."""
    cell = row[column] if column in row else row[column.removesuffix(".bytes")]
    content: bytes | None = cell["bytes"] if isinstance(cell, dict) else cell
    return content if content and len(content) <= LARGEST else b""


def open_parquet(file: Any, url: str, column: str | None = None) -> tuple[Any, str, str | None]:
    """A Parquet file, its column of images, which a user may name, and that of labels if any."""
    from pyarrow import types
    from pyarrow.parquet import ParquetFile

    parquet = ParquetFile(file)
    schema, metadata = parquet.schema_arrow, parquet.metadata
    size = file.seek(0, io.SEEK_END)
    groups = sum(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
    if metadata.num_rows != groups or groups > size:
        raise UserError(f"the shard {url} is damaged: it says that it has {metadata.num_rows} "
                        f"rows, {groups} in row groups, in {size:,} bytes")  # fmt: skip
    structs = [
        f"{field.name}.bytes"
        for field in schema
        for inner in [field.type.get_field_index("bytes") if types.is_struct(field.type) else -1]
        if inner >= 0 and _holds_bytes(field.type.field(inner).type)
    ]
    plain = [field.name for field in schema if _holds_bytes(field.type)]
    columns = {name.removesuffix(".bytes"): name for name in [*structs, *plain]}
    if not columns:
        raise UserError(
            f"the shard {url} has no column of images, of bytes or of a struct with bytes, among "
            f"{', '.join(schema.names)}"
        )
    name = f"shards:{url.rpartition('/')[0] or url}"
    likely = list(columns)
    if column is None and len(structs) == 1 and not any(of.lower() in IMAGES for of in columns):
        likely = [structs[0].removesuffix(".bytes")]  # as Hugging Face writes images
    image = columns[image_column(name, likely, column)]
    return parquet, image, label_column([of.name for of in schema if not types.is_nested(of.type)])


def classes_of(parquet: Any, label: str) -> tuple[str, ...]:
    """Names of the classes of labels that are numbers, as Hugging Face writes them; else none."""
    try:
        known = json.loads(parquet.schema_arrow.metadata[b"huggingface"])
        names = known["info"]["features"][label]["names"]
        return tuple(map(str, names)) if isinstance(names, list) else ()
    except (KeyError, TypeError, ValueError):
        return ()


def _holds_bytes(kind: Any) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
