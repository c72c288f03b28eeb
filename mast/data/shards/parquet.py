"""Parquet files: a column of images, as bytes or as Hugging Face writes them, and one of labels."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any

from mast.core.errors import UserError
from mast.data.shards.sample import Sample
from mast.data.source import IMAGES, image_column, label_column

_ROWS = 8  # in memory at a time: a small file can say that large ones are equal
_LARGEST = 2**30  # bytes of an image


def parquet_samples(
    file: IO[bytes], url: str, column: str | None, first: int = 0, images: bool = True
) -> Iterator[Sample]:
    """The samples of a file; those before the first one, and all if need be, without images.

    Args:
        file: The Parquet file.
        url: Where it is.
        column: The column of images, if the user names it.
        first: The number of the first sample whose image is read.
        images: Whether images are read at all.
    """
    parquet, image, label = _opened(file, url, column)
    columns, stem = [label] * (label is not None), PurePosixPath(url).stem
    row = 0
    for group in range(parquet.num_row_groups):
        count = parquet.metadata.row_group(group).num_rows
        wanted = [*columns, image] if images and row + count > first else columns
        if not wanted:
            rows: Iterator[dict[str, Any]] = ({} for _ in range(count))
        else:  # from this thread, which a signal reaches
            at_once = _ROWS if image in wanted else 1024
            batches = parquet.iter_batches(at_once, [group], wanted, use_threads=False)
            rows = (each for batch in batches for each in batch.to_pylist())
        for each in rows:
            content = _content(each, image) if image in wanted else b""
            yield Sample(f"{stem}/{row}", content, each[label] if label else None, at=row)
            row += 1


def read_rows(
    file: IO[bytes], url: str, row: int, column: str | None = None
) -> tuple[int, list[bytes]]:
    """The images of the row group that has a row, and the number of its first row."""
    parquet, image, _ = _opened(file, url, column)
    first, group = 0, 0
    while row >= first + (count := parquet.metadata.row_group(group).num_rows):
        first, group = first + count, group + 1
    batches = parquet.iter_batches(_ROWS, [group], [image], use_threads=False)
    return first, [_content(each, image) for batch in batches for each in batch.to_pylist()]


def _content(row: dict[str, Any], column: str) -> bytes:
    """The encoded file in a row; empty where there is none, or too much."""
    cell = row[column] if column in row else row[column.removesuffix(".bytes")]
    content: bytes | None = cell["bytes"] if isinstance(cell, dict) else cell
    return content if content and len(content) <= _LARGEST else b""


def _opened(file: IO[bytes], url: str, column: str | None) -> tuple[Any, str, str | None]:
    """A Parquet file, its column of images, and that of labels if any."""
    from pyarrow import types
    from pyarrow.parquet import ParquetFile

    parquet = ParquetFile(file)
    schema = parquet.schema_arrow
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
    likely = list(columns)
    if column is None and len(structs) == 1 and not any(of.lower() in IMAGES for of in columns):
        likely = [structs[0].removesuffix(".bytes")]  # as Hugging Face writes images
    image = columns[image_column(f"shards:{url.rpartition('/')[0] or url}", likely, column)]
    return parquet, image, label_column([of.name for of in schema if not types.is_nested(of.type)])


def _holds_bytes(kind: Any) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
