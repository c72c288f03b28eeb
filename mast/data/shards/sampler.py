"""The order of samples in shards: a pure function of seed, epoch and batch size.

Each epoch permutes the shards, and cuts the sequence of their samples into streams of equal length.
A batch takes the same number from each stream, so each shard is read from start to end. Samples of
a few consecutive batches are shuffled. The order does not depend on the number of processes, and
resuming replays nothing.

Legend: S shards, B batch of all processes, W samples of a stream in a block of batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

STREAMS = 128  # at most
LEAST = 4  # shards of a stream


@final
@dataclass(frozen=True, eq=False)
class ShardSampler:
    """The samples of an epoch.

    Args:
        count_S: Samples of each shard.
        batch_size: The global batch, all processes together.
        shuffle: Samples in memory, over all streams.
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
        """Samples per batch from one stream."""
        most = min(STREAMS, -(-len(self.count_S) // LEAST), self.batch_size)
        return next(
            self.batch_size // streams
            for streams in range(most, 0, -1)
            if self.batch_size % streams == 0
        )

    @property
    def steps(self) -> int:
        """Batches per shuffled block; the next block is read meanwhile."""
        return max(1, self.shuffle // (2 * self.batch_size))

    def blocks(self, step: int = 0) -> Iterator[np.ndarray]:
        """Indices of samples from one step on, in blocks of batches that are shuffled together.

        Yields:
            (steps, B) int64; the first and the last may have fewer steps.
        """
        order_S = _order(len(self.count_S), self.seed, self.epoch)
        end_S = self.count_S[order_S].cumsum()
        # Maps a position in the sequence of permuted shards to a sample's index.
        shift_S = (self.count_S.cumsum() - self.count_S)[order_S] - end_S + self.count_S[order_S]
        length, width = int(end_S[-1]) * self.each // self.batch_size, self.steps * self.each
        for first in range(step // self.steps * width, length, width):
            count, parts = min(width, length - first), list[np.ndarray]()
            for number in range(self.batch_size // self.each):
                row_W = number * length + first + np.arange(count)
                index_W = row_W + shift_S[np.searchsorted(end_S, row_W, side="right")]
                index_W = index_W[_order(count, self.seed, self.epoch, number, first)]
                parts.append(index_W[: count - count % self.each].reshape(-1, self.each))
            yield np.concatenate(parts, 1)[max(0, step - first // self.each) :]


def _order(count: int, *seed: int) -> np.ndarray:
    """A permutation from raw random numbers, stable across NumPy versions."""
    keys = np.random.PCG64(np.random.SeedSequence([len(seed), *seed])).random_raw(count)
    return np.argsort(keys, kind="stable")
