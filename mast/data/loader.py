"""Batches of canvases for training, from a set in the cache or from shards read in order.

The order of a cached set is a pure function of seed and epoch; that of shards is in
`mast.data.shards.sampler`.

Legend: N images, B batch of one rank.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import cast, final

import numpy as np
import torch
from torch import Tensor

from mast.core.canvases import Canvases
from mast.core.errors import UserError, counted
from mast.core.files import default_cache, named
from mast.core.launch import cores
from mast.core.reading import Reading
from mast.core.threads import Prefetcher, Threads
from mast.data.cache import VERSION, Canvas, InMemory
from mast.data.canvas import CanvasSet, DataConfig, canvas_size, open_canvas
from mast.data.decode import BrokenImageError, Opened, open_image
from mast.data.formats import page_numbers
from mast.data.pieces import split_cut
from mast.data.shards import open_index
from mast.data.shards.index import TASK, ShardIndex, check_named
from mast.data.shards.sample import Sample, label_of
from mast.data.shards.sampler import ShardSampler
from mast.data.shards.store import READERS
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
                f"batch_size must be a multiple of {world_size}, the number of processes; got "
                f"{batch_size}"
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


_WATCHED = 4096  # images by which a run is watched
_FROM = 16  # shards that these are from
_FEW = 4  # shards by whose images a range is found
_TELLING = 10  # broken images before their share is judged
_GRAY = 128
_log = logging.getLogger("mast")


@final
class ShardLoader(Feed):
    """Batches of shards, in the order of a `ShardSampler`.

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
        self.fingerprint = f"{index.fingerprint}, canvases {VERSION}"
        self.skipped: dict[str, str] = {}
        self.classes = {TASK: index.classes} if index.classes else {}
        self._seen = 0
        self._warned = False  # of files of several pages

    def _first(self, shards: int, images: int) -> Iterator[Sample]:
        """The first images of shards that are evenly spaced."""
        some = [shard for shard in self.index.shards if shard.count]
        chosen = some[:: -(-len(some) // shards)]
        for shard in chosen:
            yield from shard.samples(0, min(-(-images // len(chosen)), shard.count))

    @cached_property
    def reading(self) -> Reading:  # type: ignore[override]  # it is found when first needed
        """How the files are read, by some images."""

        def sampled() -> Iterator[Opened]:
            with closing(Prefetcher(self._first(_FEW, SAMPLE))) as samples:
                for sample in samples:
                    with suppress(Exception), open_image(BytesIO(sample.image)) as image:
                        yield image

        return self.config.find_reading(self.index.name, sampled())

    def watched(self) -> CanvasSet:
        """Some images, in memory; read at every call."""
        samples = list(self._first(_FROM, _WATCHED))
        with ThreadPoolExecutor(self.workers) as pool:
            outcomes = list(pool.map(self._canvas, samples))
        if self.index.classes:
            most = max(label_of(sample.label) for sample in samples)
            check_named(self.name, most, self.index.classes)
        label_N = np.array([self._label(sample) for sample in samples], np.int64)
        labelled = bool((label_N >= 0).any())
        whole = [
            at
            for at, outcome in enumerate(outcomes)
            if isinstance(outcome, tuple) and (label_N[at] >= 0 or not labelled)
        ]
        if not whole:
            raise UserError(f"none of {len(samples)} images of {self.name} can be decoded")
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

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        return Prefetcher(self._batches(epoch, start_step))

    def _batches(self, epoch: int, start: int) -> Iterator[Batch]:
        sampler = ShardSampler(
            self.index.count_S, self.batch_size, self.config.shuffle, self.seed, epoch
        )
        with (
            ThreadPoolExecutor(self.workers) as pool,
            closing(Prefetcher(self._steps(sampler, start), sampler.steps)) as steps,
        ):
            for samples in steps:
                yield self._batch(pool, samples)

    def _steps(self, sampler: ShardSampler, start: int) -> Iterator[list[tuple[int, Sample]]]:
        """This rank's samples of each step from one on, with their numbers in the set."""
        each, share = sampler.each, self.batch_size // self.world_size
        before = self.rank * share
        numbers = range(before // each, -(-(before + share) // each))
        before -= numbers[0] * each
        streams = [sampler.stream(number, start, self._read) for number in numbers]
        with Threads(min(READERS, len(streams))) as pool:
            while blocks := list(filter(None, pool.map(_block, streams))):
                for first in range(0, len(blocks[0]) - each + 1, each):
                    batch = [sample for block in blocks for sample in block[first : first + each]]
                    yield batch[before : before + share]

    def _read(self, shard: int, first: int, stop: int) -> Iterator[tuple[int, Sample]]:
        before = int(self.index.count_S[:shard].sum())
        return enumerate(self.index.shards[shard].samples(first, stop), before + first)

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
        label = label_of(sample.label)
        return label if label < len(self.index.classes) else -1

    def _canvas(self, sample: Sample) -> Canvas | BrokenImageError:
        try:
            return sample.canvas(self.side, self.reading, self._warn_of_pages)
        except BrokenImageError as error:
            return error

    def _warn_of_pages(self, image: Opened) -> None:
        if not self._warned and len(page_numbers(image)) > 1:
            self._warned = True
            _log.warning("%s has files with several pages or frames; only the first is read",
                         self.name)  # fmt: skip

    def _judge(self, broken: list[BrokenImageError], samples: list[tuple[int, Sample]]) -> None:
        """Count broken images and warn of them, or stop if there are too many."""
        self._seen += len(samples)
        if broken and not self.broken:
            _log.warning("%s has broken images, which others replace; the first: %s",
                         self.name, broken[0])  # fmt: skip
        self.broken += len(broken)
        most = self.config.max_broken
        judged = self.broken >= _TELLING or most == 0
        if broken and judged and self.broken > most * self._seen:
            raise UserError(
                f"data.max_broken is {most:g}, but {self.broken} of the {self._seen} images of "
                f"{self.name} read so far are broken; the last: {broken[-1]}"
            )


def _block(stream: Iterator[list[tuple[int, Sample]]]) -> list[tuple[int, Sample]]:
    return next(stream, [])


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
    if options := (cut.suffix + config.cut.suffix).strip("#"):
        raise UserError(
            f"{options}: shards are streamed, so {spec} cannot be tiled or filtered; do it while "
            f"writing them: mast shard 'FOLDER#{options}'"
        )
    folder = default_cache() if config.cache is None else named(config.cache)
    return ShardLoader(
        open_index(config.spec, folder), config, view_size, batch_size, seed,
        rank=rank, world_size=world_size, local=local, device=device,
    )  # fmt: skip
