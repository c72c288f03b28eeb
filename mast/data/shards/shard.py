"""One shard, a tar of WebDataset or a Parquet file, read from its beginning to its end."""

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import final

from mast.core.errors import UserError
from mast.data.shards.parquet import parquet_samples, read_rows
from mast.data.shards.sample import Sample
from mast.data.shards.store import naming_shard, open_shard
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
    """

    url: str
    count: int
    size: int
    column: str | None = None

    def samples(self, first: int, stop: int) -> Iterator[Sample]:
        """Samples by their numbers in the shard; UserError if the count is wrong."""
        number = 0
        with closing(self.every_sample(first)) as samples:
            for number, sample in enumerate(samples, 1):
                if number > self.count:
                    raise self.miscounted("more")
                if number > first:
                    yield sample
                if number == stop < self.count:
                    return
        if number < self.count:
            raise self.miscounted("fewer")

    def every_sample(self, first: int = 0, images: bool = True) -> Generator[Sample, None, None]:
        """All samples that the file has; those before the first one without their images."""
        with naming_shard(self.url), open_shard(self.url, self.size) as file:
            if self.is_parquet:
                yield from parquet_samples(file, self.url, self.column, first, images)
            else:
                yield from tar_samples(file, self.url, first, images)

    @property
    def is_parquet(self) -> bool:
        return self.url.endswith(".parquet")

    def read_rows(self, row: int) -> tuple[int, list[bytes]]:
        """The images of the row group of a Parquet file that has a row, and its first row."""
        with naming_shard(self.url), open_shard(self.url, self.size) as file:
            return read_rows(file, self.url, row, self.column)

    def miscounted(self, how: str) -> UserError:
        """An error for "more" or "fewer" samples (`how`) than were counted."""
        return UserError(
            f"the shard {self.url} has {how} samples than the {self.count} that were counted: it "
            "changed since, or the index.json beside it is wrong"
        )
