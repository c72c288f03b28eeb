"""In which order the samples of shards are seen: a pure function of a place in a run.

In an epoch the shards are permuted. Their samples, in that order, are a row, of which each rank
takes a part of equal length, so that it reads whole shards but for the first and the last one. A
shuffle within reach mixes what it reads: no sample moves further than the width of the shuffle, so
a buffer of that many samples is enough, and where it begins or goes on is computed, not replayed.

Where a run goes on with another number of ranks in the middle of an epoch, what is left of the
epoch is a row again, in the same order, and is dealt again.

Legend: P positions in a row, I intervals of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, final

import numpy as np

_BLOCK = 4096  # positions whose random numbers are drawn at a time


@final
@dataclass(frozen=True)
class ReaderRow:
    """Samples, as intervals [start, stop) of positions in the row of the whole epoch."""

    start_I: np.ndarray
    stop_I: np.ndarray

    @classmethod
    def whole(cls, count: int) -> "ReaderRow":
        """The row of an epoch of so many samples."""
        return cls(np.array([0], np.int64), np.array([count], np.int64))

    def __len__(self) -> int:
        return int((self.stop_I - self.start_I).sum())

    def at(self, index_P: np.ndarray) -> np.ndarray:
        """The positions, (P,) int64, of what is at some places of this row."""
        end_I = np.cumsum(self.stop_I - self.start_I)
        interval_P = np.searchsorted(end_I, index_P, side="right")
        return self.stop_I[interval_P] - (end_I[interval_P] - index_P)

    def some(self, places: "ReaderRow") -> "ReaderRow":
        """What is at some places of this row, which are in order."""
        end_I = np.cumsum(self.stop_I - self.start_I)
        cut_P = np.unique(np.concatenate([places.start_I, places.stop_I, end_I]))
        first_P, length_P = cut_P[:-1], np.diff(cut_P)
        interval_P = np.searchsorted(places.start_I, first_P, side="right") - 1
        wanted_P = (interval_P >= 0) & (first_P < places.stop_I[interval_P])
        start_P = self.at(first_P[wanted_P])
        return joined([ReaderRow(start_P, start_P + length_P[wanted_P])])

    def part(self, start: int, stop: int) -> "ReaderRow":
        """What is from one place of this row on and before another."""
        return self.some(ReaderRow(np.array([start]), np.array([stop])))


def joined(rows: Sequence[ReaderRow]) -> ReaderRow:
    """Rows one behind the other; intervals that touch become one."""
    start_I = np.concatenate([row.start_I for row in rows])
    stop_I = np.concatenate([row.stop_I for row in rows])
    if len(start_I) == 0:
        return ReaderRow(start_I, stop_I)
    apart = start_I[1:] != stop_I[:-1]
    return ReaderRow(start_I[np.append(True, apart)], stop_I[np.append(apart, True)])


@final
@dataclass(frozen=True)
class Shuffle:
    """An order of `length` places of a row, in which none moves further than `width`.

    A place p is sorted by p + width u, of which u is drawn for each place from [0, 1), seeded by
    the whole numbers of `place`.
    """

    length: int
    width: int
    place: tuple[int, ...]

    def between(self, start: int, stop: int) -> np.ndarray:
        """The places that come from the `start`-th on and before the `stop`-th, (P,), in order."""
        low = max(0, start - self.width)  # what is before has come
        return self._sorted(low, stop + self.width)[start - low : stop - low]

    def left(self, count: int) -> ReaderRow:
        """The places that are not among the first `count`, in the order of the row."""
        low, high = max(0, count - self.width), min(self.length, count + self.width)
        waiting_P = np.sort(self._sorted(low, high)[count - low :])
        tail = ReaderRow(np.array([high]), np.array([self.length]))
        return joined([ReaderRow(waiting_P, waiting_P + 1), tail])

    def _sorted(self, low: int, high: int) -> np.ndarray:
        """The places from `low` on and below `high`, in the order in which they come."""
        place_P = np.arange(low, min(self.length, high))
        first, last = low // _BLOCK, high // _BLOCK
        random_P = np.concatenate([self._random(block) for block in range(first, last + 1)])
        random_P = random_P[low - first * _BLOCK :][: len(place_P)]
        return place_P[np.argsort(place_P + self.width * random_P, kind="stable")]

    def _random(self, block: int) -> np.ndarray:
        """Of so many places from [0, 1): raw numbers, which no version of NumPy changes."""
        seed = np.random.SeedSequence([len(self.place), *self.place, block])
        return (np.random.PCG64(seed).random_raw(_BLOCK) >> np.uint64(11)) * 2.0**-53


class Deal(NamedTuple):
    """After how many steps of an epoch how many ranks share what is left of it."""

    step: int
    ranks: int


@final
@dataclass(frozen=True)
class Dealing:
    """The samples of an epoch, dealt to the ranks.

    Args:
        counts: Samples of each shard.
        batch_size: The global batch, all ranks together.
        width: Of the shuffle within a rank, in samples.
        seed: Seed of the order.
        epoch: From 0.
        deals: The first is from step 0 on.
    """

    counts: Sequence[int]
    batch_size: int
    width: int
    seed: int
    epoch: int
    deals: tuple[Deal, ...]

    def part(self, rank: int) -> tuple[ReaderRow, Shuffle]:
        """What a rank takes since the last deal: a row, and the order of its places."""
        row = ReaderRow.whole(sum(self.counts))
        for number, (deal, following) in enumerate(pairwise(self.deals)):
            row = self._left(row, number, deal.ranks, following.step - deal.step)
        return self._share(row, len(self.deals) - 1, rank)

    def _share(self, row: ReaderRow, number: int, rank: int) -> tuple[ReaderRow, Shuffle]:
        ranks = self.deals[number].ranks
        length = len(row) // ranks
        place = (self.seed, self.epoch, number, ranks, rank)
        return row.part(rank * length, (rank + 1) * length), Shuffle(length, self.width, place)

    def _left(self, row: ReaderRow, number: int, ranks: int, steps: int) -> ReaderRow:
        """What no rank has seen after some steps of a deal."""
        left = []
        for rank in range(ranks):
            own, shuffle = self._share(row, number, rank)
            left.append(own.some(shuffle.left(steps * self.batch_size // ranks)))
        whole = len(row)
        return joined([*left, row.part(whole - whole % ranks, whole)])

    def shards(self) -> np.ndarray:
        """The shards in the order of the epoch, (S,) int64."""
        keys_S = np.random.PCG64(np.random.SeedSequence([self.seed, self.epoch]))
        return np.argsort(keys_S.random_raw(len(self.counts)), kind="stable")
