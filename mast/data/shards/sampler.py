"""In which order samples of shards are seen: a pure function of seed, epoch and batch size.

In an epoch the shards are permuted. Their samples, in that order, are a row, which is cut into
streams of equal length. A batch takes the same number from each stream, so a process reads only the
streams of its part of every batch, each shard from its beginning to its end. What a few batches
take from a stream is shuffled. The number of processes changes nothing, and nothing is replayed.

Legend: S shards.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import TypeVar, final

import numpy as np

STREAMS = 128  # at most; more processes share the streams
LEAST = 4  # shards of a stream: its first one is passed over up to where the stream begins
Item = TypeVar("Item")


@final
@dataclass(frozen=True, eq=False)
class ShardSampler:
    """The samples of an epoch.

    Args:
        count_S: Samples of each shard.
        batch_size: The global batch, all processes together.
        shuffle: Samples in memory, of all streams together.
        seed: Seed of the order.
        epoch: From 0.
    """

    count_S: np.ndarray
    batch_size: int
    shuffle: int
    seed: int
    epoch: int

    @cached_property
    def each(self) -> int:
        """How many samples of a batch are from one stream."""
        most = min(STREAMS, -(-len(self.count_S) // LEAST), self.batch_size)
        return next(
            self.batch_size // streams
            for streams in range(most, 0, -1)
            if self.batch_size % streams == 0
        )

    @property
    def length(self) -> int:
        """Samples of a stream."""
        return int(self.count_S.sum()) * self.each // self.batch_size

    @property
    def steps(self) -> int:
        """Steps whose samples are shuffled together, while those of the next ones are read."""
        return max(1, self.shuffle // (2 * self.batch_size))

    def stream(
        self, number: int, step: int, read: Callable[[int, int, int], Iterator[Item]]
    ) -> Iterator[list[Item]]:
        """What a stream gives from one step on, as many steps at a time as are shuffled together.

        Args:
            number: Of the stream, from 0.
            step: From 0.
            read: From a shard and a range [start, stop) of numbers in it to those samples.
        """
        width = self.steps * self.each
        begin = step // self.steps * width
        spans = self._spans(number * self.length + begin, (number + 1) * self.length)
        samples = chain.from_iterable(read(*span) for span in spans)
        for first in range(begin, self.length, width):
            block = list(islice(samples, width))
            order = _order(len(block), self.seed, self.epoch, number, first)
            yield [block[at] for at in order[max(0, step * self.each - first) :]]

    def _spans(self, first: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """A range of the row as shards and ranges in them."""
        order_S = np.array(_order(len(self.count_S), self.seed, self.epoch))
        end_S = self.count_S[order_S].cumsum()
        while first < stop:
            place = int(np.searchsorted(end_S, first, side="right"))
            shard, end = int(order_S[place]), int(end_S[place])
            begin = end - int(self.count_S[shard])
            yield shard, first - begin, min(stop, end) - begin
            first = min(stop, end)


def _order(count: int, *seed: int) -> list[int]:
    """A permutation, from raw random numbers, which no version of NumPy changes."""
    keys = np.random.PCG64(np.random.SeedSequence([len(seed), *seed])).random_raw(count)
    return [int(at) for at in np.argsort(keys, kind="stable")]
