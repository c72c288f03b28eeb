"""Small sets in shards, by WebDataset's own writer."""

import io
from pathlib import Path

import numpy as np
from PIL import Image
from webdataset import TarWriter


def encoded(number: int, side: int = 12) -> bytes:
    """An image whose colour tells its number."""
    file = io.BytesIO()
    Image.new("RGB", (side, side), (number % 256, number // 256, 7)).save(file, "PNG")
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
