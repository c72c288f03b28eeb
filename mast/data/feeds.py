"""From what the user names to what a run learns from."""

from pathlib import Path

import torch

from mast.core.errors import UserError
from mast.core.launch import cores
from mast.data.canvas import DataConfig, canvas_size, open_canvas
from mast.data.feed import Feed, Loader
from mast.data.pieces import split_cut
from mast.data.shards import open_index
from mast.data.shards.stream import ShardLoader
from mast.data.source import SHARDS
from mast.data.sources import default_cache


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
        config: Which they are.
        view_size: Side in pixels of the views that will be cut from the canvases.
        batch_size: The global batch, all ranks together.
        seed: Of the order.
        rank: This process, from 0.
        world_size: Number of processes.
        local: How many of them share this machine's cores.
        device: Which wants the batches.

    Raises:
        UserError: There is no such set, it cannot be read, or it makes no batch.
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
    folder = Path(config.cache) if config.cache is not None else default_cache()
    return ShardLoader(
        open_index(config.spec, folder),
        config.canvas or canvas_size(view_size),
        batch_size,
        seed,
        rank=rank,
        world_size=world_size,
        device=device,
        width=config.shuffle,
        readers=config.readers,
        workers=config.workers or max(1, cores() // local),
        max_broken=config.max_broken,
        read=config.find_reading,
    )
