"""Batches of canvases for training, from a set in the cache or from shards read in order.

The order of a cached set is a pure function of seed, epoch and rank; that of shards is in
`mast.data.shards.dealing`.

Legend: N images or samples of a shard, B batch of one rank.
"""

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import islice
from typing import Any, cast, final

import numpy as np
import torch
from torch import Tensor

from mast.core.canvases import Canvases
from mast.core.errors import UserError, counted
from mast.core.files import default_cache, named
from mast.core.launch import cores
from mast.core.reading import Reading
from mast.core.threads import Prefetcher
from mast.data.cache import VERSION, Canvas, InMemory
from mast.data.canvas import CanvasSet, DataConfig, canvas_size, open_canvas
from mast.data.decode import BrokenImageError, Opened, open_image
from mast.data.formats import page_numbers
from mast.data.pieces import split_cut
from mast.data.shards import open_index
from mast.data.shards.dealing import Deal, Dealing, ReaderRow
from mast.data.shards.index import TASK, ShardIndex, check_named
from mast.data.shards.shard import Sample
from mast.data.source import SAMPLE, SHARDS


@dataclass(frozen=True)
class Batch:
    """The canvases of one step.

    Attributes:
        canvases: B images, pinned for a GPU, or on the device of a resident set.
        index_B: int64, their indices in the set.
        label_B: int64, their classes, where the set has one kind of labels.
    """

    canvases: Canvases
    index_B: Tensor
    label_B: Tensor | None = None


class Feed(ABC):
    """Shuffled batches, all ranks together those of one.

    Attributes:
        name: What the user called the set.
        images: How many it has.
        batch_size: The global batch, all ranks together.
        fingerprint: Hash of the images and their order.
        skipped: Reason by name of every broken file that was left out.
        classes: Names of classes by task; empty where there are no labels.
        steps_per_epoch: Batches of an epoch; what does not fill one is left out.
        broken: Images that this process found broken since it began; others took their places.
    """

    counts_broken = False  # whether images may be found broken while a run trains
    fingerprint: str
    skipped: Mapping[str, str]
    classes: Mapping[str, tuple[str, ...]]
    reading: Reading

    def __init__(
        self,
        name: str,
        images: int,
        batch_size: int,
        seed: int,
        rank: int,
        world_size: int,
        device: torch.device,
    ) -> None:
        assert 0 <= rank < world_size, (rank, world_size)
        if batch_size < 1 or batch_size % world_size:
            raise UserError(
                f"a batch of {batch_size} cannot be shared by {world_size} processes: set "
                f"batch_size to a multiple of {world_size}."
            )
        if images < batch_size:
            most = images - images % (2 * world_size)  # two for each process, the fewest it takes
            lower = f"set batch_size to {most} or less, or " if most else ""
            raise UserError(
                f"{name} has {counted(images, 'image')}, fewer than one batch of {batch_size}: "
                f"{lower}give more images."
            )
        self.name = name
        self.images = images
        self.batch_size = batch_size
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self.steps_per_epoch = images // batch_size
        self.broken = 0

    def __len__(self) -> int:
        return self.images

    @abstractmethod
    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from 0, from a step on; errors in the background are raised.

        Closing the iterator early, or dropping it, ends the background threads.
        """

    @abstractmethod
    def watched(self) -> CanvasSet:
        """Images by which a run is watched while it trains."""

    @property
    def place(self) -> Any:
        """What a checkpoint keeps of the order beside the step; None where that is all."""
        return None

    @place.setter
    def place(self, saved: Any) -> None:
        if saved is not None:
            raise ValueError(f"this feed saves no position, got {saved}")

    def onto(self, device: torch.device, limit_gb: float) -> None:  # noqa: B027  # most cannot
        """Keep the images in a device's memory, where they are known to fit below a limit."""


CPU = torch.device("cpu")


@final
class Loader(Feed):
    """Shuffled batches, the next ones prepared in a background thread.

    An epoch is one permutation of the set, drawn from (seed, epoch) and cut into global batches;
    a rank takes its contiguous part of each, so all ranks together see what one alone would. What
    does not fill a batch at the end of an epoch is left out.

    Attributes:
        resident: The same canvases on the device that wants the batches, if they are there.
    """

    def __init__(
        self,
        canvas_set: CanvasSet,
        batch_size: int,
        seed: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device = CPU,
    ) -> None:
        count = len(canvas_set)
        super().__init__(canvas_set.name, count, batch_size, seed, rank, world_size, device)
        self.fingerprint = canvas_set.fingerprint
        self.skipped = canvas_set.skipped
        self.classes = {task: canvas_set.classes[task] for task in canvas_set.targets}
        self.reading = canvas_set.reading
        self.canvas_set = canvas_set
        self.resident: Canvases | None = None

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        return Prefetcher(self._batches(epoch, start_step))

    def watched(self) -> CanvasSet:
        return self.canvas_set

    def onto(self, device: torch.device, limit_gb: float) -> None:
        self.resident = self.canvas_set.resident(device, limit_gb)

    def _batches(self, epoch: int, start_step: int) -> Iterator[Batch]:
        order_N = np.random.default_rng((self.seed, epoch)).permutation(len(self.canvas_set))
        share = self.batch_size // self.world_size
        for step in range(start_step, self.steps_per_epoch):
            first = step * self.batch_size + self.rank * share
            yield self._batch(order_N[first : first + share])

    def _batch(self, index_B: np.ndarray) -> Batch:
        labels = list(self.canvas_set.targets.values())
        label_B = torch.from_numpy(labels[0][index_B]) if len(labels) == 1 else None
        if self.resident is not None:
            canvases = self.resident[torch.from_numpy(index_B)]
        else:
            canvases = self.canvas_set.batch(index_B).pinned(self.device)
        return Batch(canvases, torch.from_numpy(index_B), label_B)


_WAITING = 64  # samples of a shard that are read ahead of their use
_WATCHED = 4096  # images by which a run is watched
_FROM = 16  # shards that these are from
_FEW = 4  # shards by whose images a range is found
_TELLING = 10  # broken images before their share is judged
_GRAY = 128
_log = logging.getLogger("mast")


@final
class ShardLoader(Feed):
    """Batches in an order that is a pure function of seed, epoch and the numbers of ranks.

    `local` processes share this machine's cores, for threads that decode.
    """

    counts_broken = True

    def __init__(
        self,
        index: ShardIndex,
        config: DataConfig,
        view_size: int,
        batch_size: int,
        seed: int,
        *,
        rank: int,
        world_size: int,
        local: int,
        device: torch.device,
    ) -> None:
        super().__init__(index.name, len(index), batch_size, seed, rank, world_size, device)
        self.index = index
        self.config = config
        self.side = config.canvas or canvas_size(view_size)
        self.workers = config.workers or max(1, cores() // local)
        self.fingerprint = f"{index.fingerprint}, canvases {VERSION}"  # which are made anew
        self.skipped: dict[str, str] = {}
        self.classes = {TASK: index.classes} if index.classes else {}
        self._deals: tuple[int, tuple[Deal, ...]] = (-1, ())
        self._seen = 0
        self._warned = False  # of files of several pages

    @cached_property
    def reading(self) -> Reading:  # type: ignore[override]  # it is found when first needed
        """How the files are read, by the first images of the first shards."""

        def sampled() -> Iterator[Opened]:
            for shard in [shard for shard in self.index.shards if shard.count][:_FEW]:
                wanted = np.arange(min(SAMPLE // _FEW, shard.count))
                with closing(Prefetcher(shard.samples(wanted))) as samples:
                    for sample in samples:
                        with suppress(Exception), open_image(BytesIO(sample.image)) as image:
                            yield image

        return self.config.find_reading(self.index.name, sampled())

    def watched(self) -> CanvasSet:
        """The first images of shards that are evenly spaced, in memory; read at every call."""
        some = [shard for shard in self.index.shards if shard.count]
        chosen = some[:: -(-len(some) // _FROM)]
        each = -(-_WATCHED // len(chosen))
        samples = [
            sample
            for shard in chosen
            for sample in shard.samples(np.arange(min(each, shard.count)))
        ]
        with ThreadPoolExecutor(self.workers) as pool:
            outcomes = list(pool.map(self._canvas, samples))
        if self.index.classes:
            most = max(sample.label for sample in samples)
            check_named(self.name, most, self.index.classes)
        label_N = np.array([self._label(sample) for sample in samples], np.int64)
        labelled = bool((label_N >= 0).any())
        whole = [
            at
            for at, outcome in enumerate(outcomes)
            if isinstance(outcome, tuple) and (label_N[at] >= 0 or not labelled)
        ]
        if not whole:
            raise UserError(f"none of the first {len(samples)} images of {self.name} is whole")
        drawn = [cast(Canvas, outcomes[at]) for at in whole]
        classes = dict(self.classes) if labelled else {}
        return CanvasSet(
            self.name,
            InMemory.of([canvas for canvas, _ in drawn], self.reading.layout),
            np.array([aspect for _, aspect in drawn], np.float32),
            dict.fromkeys(classes, label_N[whole]),
            classes,
            tuple(samples[at].key for at in whole),
            self.fingerprint,
            reading=self.reading,
        )

    @property
    def place(self) -> Any:
        """The epoch, and since which of its steps how many ranks shared it."""
        epoch, deals = self._deals
        return [epoch, [list(deal) for deal in deals]]

    @place.setter
    def place(self, saved: Any) -> None:
        epoch, saved_deals = saved or (-1, ())
        deals = tuple(Deal(*map(int, deal)) for deal in saved_deals)
        if deals and not (deals[0].step == 0 and all(deal.ranks > 0 for deal in deals)):
            raise ValueError(f"an epoch is dealt from its first step on, got {deals}")
        if sorted({deal.step for deal in deals}) != [deal.step for deal in deals]:
            raise ValueError(f"deals follow one another, got {deals}")
        self._deals = int(epoch), deals

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        deals = self._deals[1] if self._deals[0] == epoch else ()
        deals = tuple(deal for deal in deals if deal.step < start_step) or (
            Deal(0, self.world_size),
        )
        if deals[-1].ranks != self.world_size:
            deals = (*deals, Deal(start_step, self.world_size))
        self._deals = epoch, deals
        return Prefetcher(self._batches(epoch, deals, start_step))

    def _batches(self, epoch: int, deals: tuple[Deal, ...], start: int) -> Iterator[Batch]:
        share = self.batch_size // self.world_size
        dealing = Dealing(
            self.index.counts.tolist(), self.batch_size, self.config.shuffle, self.seed, epoch,
            deals,
        )  # fmt: skip
        with (
            ThreadPoolExecutor(self.workers) as pool,
            closing(self._samples(dealing, (start - deals[-1].step) * share)) as samples,
        ):
            for step in range(start, self.steps_per_epoch):
                batch = self._batch(pool, list(islice(samples, share)))
                if step == self.steps_per_epoch - 1:  # what fills no batch: is each shard whole?
                    deque(samples, 0)
                yield batch

    def _batch(self, pool: ThreadPoolExecutor, samples: list[tuple[int, Sample]]) -> Batch:
        """The whole image before a broken one takes its place, or the next; else gray does."""
        outcomes = list(pool.map(self._canvas, (sample for _, sample in samples)))
        self._judge([each for each in outcomes if isinstance(each, BrokenImageError)], samples)
        gray = np.full((self.reading.layout.sheets, 1, 1, 3), _GRAY, np.uint8), 1.0
        whole = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, tuple)]
        taken, at = [], whole[0] if whole else 0
        for place, outcome in enumerate(outcomes):
            at = place if isinstance(outcome, tuple) else at
            taken.append(at)
        drawn = [cast(Canvas, outcomes[at]) if whole else gray for at in taken]
        label_B = None
        if self.classes:
            label_B = torch.tensor([self._label(samples[at][1]) for at in taken])
        canvases = Canvases.packed(
            torch.from_numpy(np.concatenate([canvas.ravel() for canvas, _ in drawn])),
            torch.tensor([canvas.shape[-3:-1] for canvas, _ in drawn]),
            torch.tensor([aspect for _, aspect in drawn]),
            self.reading.layout,
        )
        return Batch(
            canvases.pinned(self.device), torch.tensor([samples[at][0] for at in taken]), label_B
        )

    def _label(self, sample: Sample) -> int:
        """The number of its class; -1 where it has none of those that have names."""
        return sample.label if 0 <= sample.label < len(self.index.classes) else -1

    def _canvas(self, sample: Sample) -> Canvas | BrokenImageError:
        try:
            return sample.canvas(self.side, self.reading, self._warn_of_pages)
        except BrokenImageError as error:
            return error

    def _warn_of_pages(self, image: Opened) -> None:
        if not self._warned and len(page_numbers(image)) > 1:
            self._warned = True
            _log.warning("%s has files of several pages or frames, of which the first is read",
                         self.name)  # fmt: skip

    def _judge(self, broken: list[BrokenImageError], samples: list[tuple[int, Sample]]) -> None:
        """Count what is broken, and say so."""
        self._seen += len(samples)
        if broken and not self.broken:
            _log.warning("%s has broken images, of which others take the place: %s",
                         self.name, broken[0])  # fmt: skip
        self.broken += len(broken)
        most = self.config.max_broken
        judged = self.broken >= _TELLING or most == 0
        if broken and judged and self.broken > most * self._seen:
            raise UserError(
                f"{self.broken} of the {self._seen} images of {self.name} that were read are "
                f"broken; data.max_broken is {most:g}. The last one is {broken[-1]}"
            )

    def _samples(self, dealing: Dealing, done: int) -> Generator[tuple[int, Sample], None, None]:
        """This rank's samples in their order, each with its number in the set, from one on."""
        row, shuffle = dealing.part(self.rank)
        left = shuffle.left(done)
        places = (
            place
            for start, stop in zip(left.start_I.tolist(), left.stop_I.tolist(), strict=True)
            for place in range(start, stop)
        )
        waiting: dict[int, tuple[int, Sample]] = {}
        with closing(self._read(dealing, row.some(left))) as read:
            for start in range(done, shuffle.length, self.config.shuffle):
                stop = min(start + self.config.shuffle, shuffle.length)
                for place in shuffle.between(start, stop).tolist():
                    while place not in waiting:
                        waiting[next(places)] = next(read)
                    yield waiting.pop(place)

    def _read(self, dealing: Dealing, row: ReaderRow) -> Generator[tuple[int, Sample], None, None]:
        """The samples of a row, in its order, from several shards that are read at a time."""
        first_S = self.index.counts.cumsum() - self.index.counts
        openings = (
            (number, offset_N, Prefetcher(self.index.shards[number].samples(offset_N), _WAITING))
            for number, offset_N in _by_shard(row, dealing.shards(), self.index.counts)
        )
        reading = deque(islice(openings, self.config.readers))
        try:
            while reading:
                number, offset_N, samples = reading[0]
                for offset, sample in zip(offset_N.tolist(), samples, strict=True):
                    yield int(first_S[number]) + offset, sample
                reading.popleft()
                reading.extend(islice(openings, 1))
        finally:
            for _, _, samples in reading:
                samples.close()


def _by_shard(
    row: ReaderRow, order_S: np.ndarray, count_S: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """A row as numbers of shards, and the rising offsets in each."""
    end_S = count_S[order_S].cumsum()
    offsets: list[np.ndarray] = []
    current = -1
    for start, stop in zip(row.start_I.tolist(), row.stop_I.tolist(), strict=True):
        at = start
        while at < stop:
            place = int(np.searchsorted(end_S, at, side="right"))
            if place != current and offsets:
                yield int(order_S[current]), np.concatenate(offsets)
                offsets = []
            current = place
            begin = int(end_S[place] - count_S[order_S[place]])
            until = min(stop, int(end_S[place]))
            offsets.append(np.arange(at - begin, until - begin))
            at = until
    if offsets:
        yield int(order_S[current]), np.concatenate(offsets)


def open_feed(
    config: DataConfig,
    view_size: int,
    batch_size: int,
    seed: int,
    *,
    rank: int,
    world_size: int,
    local: int,
    device: torch.device,
) -> Feed:
    """Opens the images of a run.

    Args:
        view_size: Side in pixels of the views that will be cut from the canvases.
        batch_size: The global batch, all ranks together.
        seed: Seed of the order.
        local: How many processes share this machine's cores.
        device: Where the batches are used.
    """
    if not config.spec.startswith(SHARDS):
        canvases = open_canvas(config, view_size, local)
        return Loader(canvases, batch_size, seed, rank=rank, world_size=world_size, device=device)
    spec, cut = split_cut(config.spec)
    if said := cut.suffix + config.cut.suffix:
        raise UserError(
            f"{spec} is read in order, each image as it lies there: give {said.strip('#')} to mast "
            "shard, which writes such images"
        )
    folder = default_cache() if config.cache is None else named(config.cache)
    return ShardLoader(
        open_index(config.spec, folder), config, view_size, batch_size, seed,
        rank=rank, world_size=world_size, local=local, device=device,
    )  # fmt: skip
