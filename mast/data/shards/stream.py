"""Stream canvases from shards for training, in the order of a `ShardSampler`.

Legend: B batch of one rank.
"""

import logging
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cached_property
from io import BytesIO
from typing import cast, final

import numpy as np
import torch

from mast.core.canvases import Canvases
from mast.core.errors import UserError
from mast.core.reading import Reading
from mast.core.threads import prefetched
from mast.data.cache import VERSION, Canvas
from mast.data.canvas import CanvasSet, DataConfig
from mast.data.decode import BrokenImageError, Opened, open_image
from mast.data.pixels import Pixels, decode_in_order
from mast.data.shards.sampler import ShardSampler
from mast.data.shards.source import Shards
from mast.data.source import SAMPLE

_WATCHED = 4096  # images for online scores
_FROM = 16  # shards to take them from
_FEW = 4  # shards to estimate a range from
_TELLING = 10  # broken images before their share is checked
_GRAY = 128
_log = logging.getLogger("mast")


@final
class ShardStream:
    """Images of shards; broken ones are replaced by others of the batch.

    Attributes:
        name: The user's name of the set.
        fingerprint: Hash of the images and their order.
        targets: Label arrays by task; empty without labels.
        classes: Names of classes by task.
        broken: Images found broken so far.
    """

    def __init__(self, source: Shards, config: DataConfig, side: int, workers: int) -> None:
        self.name, self.source, self.config = source.name, source, config
        self.side, self.workers = side, workers
        self.fingerprint = f"{source.order_fingerprint()}, canvases {VERSION}"
        self.skipped: dict[str, str] = {}
        self.targets, self.classes = source.targets, source.classes
        self.broken = self._seen = 0

    def __len__(self) -> int:
        return len(self.source)

    def _first(self, shards: int, images: int) -> list[int]:
        """The first images of shards that are evenly spaced."""
        count_S = self.source.table.count_S
        some = np.flatnonzero(count_S)
        chosen = some[:: -(-len(some) // shards)]
        most, first_S = -(-images // len(chosen)), count_S.cumsum() - count_S
        return [
            index
            for shard in chosen
            for index in range(first_S[shard], first_S[shard] + min(most, int(count_S[shard])))
        ]

    @cached_property
    def reading(self) -> Reading:
        """The mapping of file values to pixels, from a sample."""

        def sampled() -> Iterator[Opened]:
            for content in self.source.encoded(self._first(_FEW, SAMPLE)).values():
                with suppress(Exception), open_image(BytesIO(content)) as image:
                    yield image

        return self.config.find_reading(self.name, sampled())

    def watched(self) -> CanvasSet:
        """Some images, in memory; read at every call."""
        indices = np.array(self._first(_FROM, _WATCHED))
        if self.classes:
            (label_N,) = self.source.targets.values()
            labelled_N = label_N[indices] >= 0
            indices = indices[labelled_N | ~labelled_N.any()]
        outcomes = self._decode(indices, self.source.encoded(indices.tolist()))
        whole = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, tuple)]
        if not whole:
            raise UserError(f"none of {len(indices)} images of {self.name} can be decoded")
        drawn, indices = [cast(Canvas, outcomes[at]) for at in whole], indices[whole]
        targets = {task: label_N[indices] for task, label_N in self.source.targets.items()}
        labelled = all((label_N >= 0).any() for label_N in targets.values())
        return CanvasSet(
            self.name,
            Pixels.of([canvas for canvas, _ in drawn], self.reading.layout),
            np.array([aspect for _, aspect in drawn], np.float32),
            targets if labelled else {},
            self.classes if labelled else {},
            tuple(map(self.source.identifier, indices.tolist())),
            self.fingerprint,
            reading=self.reading,
        )

    def batches(
        self, batch_size: int, seed: int, epoch: int, start: int, part: slice
    ) -> Iterator[tuple[Canvases, np.ndarray]]:
        """This rank's part of each batch from a step on, with image indices."""
        count_S, shuffle = self.source.table.count_S, self.config.shuffle
        sampler = ShardSampler(count_S, batch_size, shuffle, seed, epoch)
        with closing(prefetched(self._encoded(sampler, start, part), sampler.steps)) as steps:
            for index_B, encoded in steps:
                yield self._batch(index_B, self._decode(index_B, encoded))

    def _encoded(
        self, sampler: ShardSampler, start: int, part: slice
    ) -> Iterator[tuple[np.ndarray, dict[int, bytes]]]:
        """The files of each step."""
        for index_SB in sampler.blocks(start):
            ours_SB = index_SB[:, part]
            encoded = self.source.encoded(ours_SB.ravel().tolist())
            for index_B in ours_SB:
                yield index_B, {index: encoded.pop(index) for index in index_B.tolist()}

    def _decode(
        self, index_B: np.ndarray, encoded: dict[int, bytes]
    ) -> list[Canvas | BrokenImageError]:
        def decode(index: int) -> Canvas:
            return self.source.decode(index, encoded[index], self.side, self.reading)

        return [*decode_in_order(decode, index_B.tolist(), self.workers)]

    def _batch(
        self, index_B: np.ndarray, outcomes: list[Canvas | BrokenImageError]
    ) -> tuple[Canvases, np.ndarray]:
        """Replace a broken image by the one before it, the next one, or gray."""
        self._judge([each for each in outcomes if isinstance(each, BrokenImageError)], len(index_B))
        gray = np.full((self.reading.layout.sheets, 1, 1, 3), _GRAY, np.uint8), 1.0
        whole = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, tuple)]
        taken, at = [], whole[0] if whole else 0
        for place, outcome in enumerate(outcomes):
            at = place if isinstance(outcome, tuple) else at
            taken.append(at)
        drawn = [cast(Canvas, outcomes[at]) if whole else gray for at in taken]
        canvases = Canvases.packed(
            torch.from_numpy(np.concatenate([canvas.ravel() for canvas, _ in drawn])),
            torch.tensor([canvas.shape[-3:-1] for canvas, _ in drawn]),
            torch.tensor([aspect for _, aspect in drawn]),
            self.reading.layout,
        )
        return canvases, index_B[taken]

    def _judge(self, broken: list[BrokenImageError], seen: int) -> None:
        """Count broken images; warn, or raise if there are too many."""
        self._seen += seen
        if broken and not self.broken:
            _log.warning("%s has broken images, which are replaced by others; the first: %s",
                         self.name, broken[0])  # fmt: skip
        self.broken += len(broken)
        most = self.config.max_broken
        judged = self.broken >= _TELLING or most == 0
        if broken and judged and self.broken > most * self._seen:
            raise UserError(
                f"data.max_broken: expected {most:g} or less, got {self.broken} of {self._seen} "
                f"images of {self.name} broken so far; the last: {broken[-1]}"
            )
