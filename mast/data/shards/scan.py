"""What lies where in a tar: its samples, by the headers of their files."""

import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple

from mast.core.errors import UserError
from mast.data.shards.shard import META, image_of, is_local, opened, reason_of

READERS = 32  # shards that are looked at at a time: a store answers many


class Part(NamedTuple):
    """A file of a sample.

    Attributes:
        at: Its first byte in the tar.
        size: Its bytes.
        content: What is in it, where that was asked for.
    """

    at: int
    size: int
    content: bytes | None


@contextmanager
def telling(url: str) -> Iterator[None]:
    """Say which shard it was where one cannot be read.

    Raises:
        UserError: Whatever was raised.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each reader raises its own
        raise UserError(f"the shard {url} cannot be read: {reason_of(error)}") from error


def tar_samples(
    url: str, wanted: Collection[str] = ()
) -> Iterator[tuple[str, str, dict[str, Part]]]:
    """The samples with an image, as WebDataset groups files.

    Args:
        url: The tar.
        wanted: Endings of the files whose content is read.

    Yields:
        Key, ending of the image, and the files by their endings.

    Raises:
        ReadError: It is damaged.
    """
    with opened(url) as file:
        # what is far is streamed: a request for every name would take longer
        with tarfile.open(fileobj=file, mode="r:" if is_local(url) else "r|") as tar:
            for key, named in groupby(_parts(tar, wanted), lambda part: part[0]):
                parts: dict[str, Part] = {}
                for _, ending, part in named:
                    if ending in parts:  # as WebDataset has it
                        raise tarfile.ReadError(f"{key}.{ending} is in it twice")
                    parts[ending] = part
                if (image := image_of(parts)) is not None:
                    yield key, image, parts
        file.seek(tar.offset)  # where the reader found no further member
        if file.read(512).strip(b"\0"):
            raise tarfile.ReadError(f"it is damaged at byte {tar.offset:,}")


def _parts(tar: tarfile.TarFile, wanted: Collection[str]) -> Iterator[tuple[str, str, Part]]:
    from webdataset.tariterators import base_plus_ext

    for member in tar:
        key, ending = base_plus_ext(member.name)
        if member.isreg() and key is not None and not META.match(member.name):
            ending = ending.lower()
            file = tar.extractfile(member) if ending in wanted else None
            content = file.read() if file is not None else None
            yield key, ending, Part(member.offset_data, member.size, content)
        tar.members = []  # type: ignore[attr-defined]  # they would be kept
