"""Small sets in shards, by WebDataset's own writer, and what is read of them."""

import functools
import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from webdataset import TarWriter

from mast.data import BrokenImageError, DataConfig, open_source
from mast.data.loader import Loader, open_loader


@functools.cache
def encoded(number: int) -> bytes:
    """An image whose color tells its number."""
    file = io.BytesIO()
    Image.new("RGB", (12, 12), (number % 256, number // 256, 7)).save(file, "PNG")
    return file.getvalue()


def numbers(canvas_BHWC: np.ndarray) -> list[int]:
    """Of images that `encoded` made."""
    return [int(first) + 256 * int(second) for first, second, _ in canvas_BHWC[:, 0, 0]]


def write_shards(root: Path, *counts: int, broken: tuple[int, ...] = ()) -> Path:
    """Tars of these many numbered images, each with its number modulo 3 as its class."""
    number = 0
    root.mkdir()
    for shard, count in enumerate(counts):
        with TarWriter(str(root / f"train-{shard:03d}.tar")) as tar:
            for _ in range(count):
                image = b"broken" if number in broken else encoded(number)
                tar.write({"__key__": f"{number:05d}", "png": image, "cls": number % 3})
                number += 1
    return root


def loader_of(
    spec: str | Path,
    cache: Path,
    batch_size: int = 1,
    rank: int = 0,
    ranks: int = 1,
    **changed: Any,
) -> Loader:
    """The loader of a training, with canvases of 12 × 12 pixels."""
    options = {"shuffle": 4, "workers": 1, "max_broken": 1.0} | changed
    config = DataConfig(f"shards:{spec}", canvas=12, cache=cache, **options)
    return open_loader(
        config, 12, batch_size, 3, rank=rank, world_size=ranks, local=1,
        device=torch.device("cpu"),
    )  # fmt: skip


def trained(root: Path) -> tuple[int, int]:
    """How many images a training sees in an epoch, and how many of them are broken."""
    loader = loader_of(root, root.parent)
    return sum(1 for _ in loader.epoch(0)), loader.broken


def opened(root: Path) -> tuple[int, int]:
    """The same of other commands."""
    source, whole = open_source(f"shards:{root}", root.parent), 0
    for index in range(len(source)):
        with suppress(BrokenImageError):
            whole += source.canvas(index, 12)[0].shape == (12, 12, 3)
    return len(source), len(source) - whole
