"""One shard, a tar of WebDataset or a Parquet file, read from its beginning to its end."""

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, final

from mast.core.errors import UserError
from mast.data.shards.parquet import parquet_samples
from mast.data.shards.sample import Sample
from mast.data.shards.store import naming, open_shard
from mast.data.shards.tar import tar_samples


@final
@dataclass(frozen=True)
class Shard:
    """A file of `count` samples and `size` bytes.

    Args:
        url: Where it is, with its protocol where it is not on this machine.
        count: Its samples.
        size: Its bytes.
        column: The column of the images of a Parquet file; by its name if not given.
        state: Size, time and version, as its store reports them.
    """

    url: str
    count: int
    size: int
    column: str | None = None
    state: str = ""

    def samples(self, first: int, stop: int) -> Iterator[Sample]:
        """Samples by their numbers in the shard; UserError if the count is wrong."""
        number = 0
        with closing(self.every_sample(first)) as samples:
            for number, sample in enumerate(samples, 1):
                if number > self.count:
                    raise miscounted(self.url, self.count)
                if number > first:
                    yield sample
                if number == stop < self.count:
                    return
        if number < self.count:
            raise miscounted(self.url, self.count)

    def every_sample(self, first: int = 0, images: bool = True) -> Generator[Sample, None, None]:
        """All samples that the file has; those before the first one without their images."""
        with self.opened() as file:
            if self.is_parquet:
                yield from parquet_samples(file, self.url, self.column, first, images)
            else:
                yield from tar_samples(file, self.url, first, images)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """The file, during whose reading an error names it."""
        with naming(f"the shard {self.url} cannot be read"), open_shard(self.url, self.size) as of:
            yield of

    @property
    def is_parquet(self) -> bool:
        return self.url.endswith(".parquet")


def miscounted(url: str, counted: int | None) -> UserError:
    """An error for a shard with more or fewer samples than were counted."""
    return UserError(
        f"the shard {url} does not have {counted} samples, the count of index.json or an earlier "
        "scan: restore the shard, or correct index.json"
    )
