"""Images to search: each is decoded once, and then recognized by its content.

Only facts are cached, not pixels, which are decoded again to show or encode them.

Legend: N images.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from torch import nn

from mast.core.display import doing, track
from mast.core.files import default_cache, state_of
from mast.core.launch import cores
from mast.core.reading import Layout, Reading
from mast.data.canvas import CanvasSet, DataConfig, find_images, set_of
from mast.data.decode import BrokenImageError
from mast.data.hashes import perceptual_hashes, pixel_digest, sharpness_and_border
from mast.data.pieces import Tiles, file_of
from mast.data.pixels import Pixels, as_sheets, decode_in_order, decoded_on_demand
from mast.data.source import Source
from mast.data.store import Facts, ImageStore, key_of

SIDE = 616  # of a square with as many pixels as a canvas has
_SAVED = 64  # images between writes of facts
_ENTERED = 1000  # files between writes of digests
See = Callable[[Sequence[bytes], np.ndarray, Layout], None]  # keys, planes (B, P, V, V) uint8
_log = logging.getLogger("mast")


def open_photos(
    config: DataConfig | str | Path,
    size: int,
    model: nn.Module | None = None,
    reading: Reading | None = None,
    see: See | None = None,
) -> CanvasSet:
    """Open a set to search; new images are decoded.

    Args:
        config: What to open; a name or path stands for `DataConfig(spec=…)`.
        size: Side in pixels of the encoders' views.
        model: Reads the images, as for `open_canvas`.
        reading: As for `open_canvas`.
        see: Gets the views of new images, so that these are decoded only once.

    Returns:
        The decodable images, with `keys` and `facts`.

    Raises:
        UserError: No such set, or too many broken files.
    """
    config, source, _, find = find_images(config, size, model, reading)
    store = ImageStore(default_cache())
    known = find()
    found = _look(source, store, known, size, see)
    skipped = {
        source.identifier(at): each for at, each in enumerate(found) if isinstance(each, str)
    }
    whole = [(at, *each) for at, each in enumerate(found) if not isinstance(each, str)]
    index_N = np.array([at for at, _, _ in whole], np.int64)
    keys, facts = [key for _, key, _ in whole], [each for _, _, each in whole]
    sides_N2 = np.array([(each.height, each.width) for each in facts], np.int64)

    def decoded(decode: Callable[[int], np.ndarray], sides_N2: np.ndarray) -> Pixels:
        workers = config.workers or cores()
        return decoded_on_demand(index_N, decode, workers, sides_N2, known.layout)

    @functools.cache
    def views(side: int) -> Pixels:
        view = functools.partial(source.test_view, size=side, reading=known)
        return decoded(lambda index: as_sheets(view(index)), np.full((len(index_N), 2), side))

    return set_of(
        config, source, index_N, skipped,
        pixels=decoded(lambda index: source.canvas(index, SIDE, known)[0], sides_N2),
        aspect_N=np.array([each.aspect for each in facts], np.float32),
        fingerprint=key_of(*keys).hex(), test_views=views, reading=known,
        own_keys=keys, facts=facts,
    )  # fmt: skip


def changed(canvases: CanvasSet, positions: Sequence[int]) -> set[int]:
    """The images whose files changed since `open_photos` read them."""
    assert canvases.source is not None
    assert canvases.index_N is not None
    index_B = canvases.index_N[np.asarray(positions, int)].tolist()
    store = ImageStore(default_cache())
    keys = _keys(canvases.source, store, canvases.reading, index_B)
    return {at for at, key in zip(positions, keys, strict=True) if key != canvases.keys[at]}


def opener(config: DataConfig) -> Callable[..., CanvasSet]:
    """`open_photos` of a set, once for the first model; all models must have its channels."""
    opened: list[CanvasSet] = []

    def photos(
        size: int, model: nn.Module, see: See | None = None, reading: Reading | None = None
    ) -> CanvasSet:
        if not opened:
            opened.append(open_photos(config, size, model, reading, see))
        return opened[0]

    return photos


def _look(
    source: Source, store: ImageStore, reading: Reading, size: int, see: See | None
) -> list[tuple[bytes, Facts] | str]:
    """Key and facts of every image, or the reason why it cannot be decoded."""
    keys = _keys(source, store, reading, range(len(source)))
    known, broken = store.facts(keys), dict[bytes, str]()
    first = {key: at for at, key in reversed([*enumerate(keys)]) if key not in known}
    new = sorted(first.values())

    def look(at: int) -> tuple[Facts, np.ndarray]:
        seen = source.look(at, SIDE, size, reading)
        sheets_SHWC = seen.canvas if seen.canvas.ndim == 4 else seen.canvas[None]
        height, width = sheets_SHWC.shape[1:3]
        shown_HWC = sheets_SHWC[0]
        if reading.layout.channels < 3:
            shown_HWC = shown_HWC[..., :1].repeat(3, axis=2)
        hashes = perceptual_hashes(shown_HWC).tobytes()
        several = int(at in source.stacks)
        digest = source.digest(at) if several else pixel_digest(sheets_SHWC)
        path, (full_width, full_height) = source.path(at), seen.full_size
        facts = Facts(
            height, width, seen.aspect, full_height, full_width,
            state_of(path)[0] if path else 0, seen.taken, *sharpness_and_border(shown_HWC),
            digest, hashes, several,
        )  # fmt: skip
        return facts, seen.view

    fresh = dict[int, tuple[Facts, np.ndarray]]()
    outcomes = decode_in_order(look, new, cores())
    shown = track(outcomes, f"reading {source.name}", len(new), "images")
    for at, outcome in zip(new, shown, strict=True):
        if isinstance(outcome, BrokenImageError):
            broken[keys[at]] = outcome.reason
        else:
            fresh[at] = outcome
        if len(fresh) == _SAVED or at == new[-1]:
            files = [seen for seen in fresh if source.path(seen) is not None]
            for seen, key in zip(files, _keys(source, store, reading, files), strict=True):
                if key != keys[seen]:  # the decoded content may be old or new
                    broken[keys[seen]] = "it changed while it was read"
                    del fresh[seen]
            found = {keys[seen]: facts for seen, (facts, _) in fresh.items()}
            if see is not None and fresh:
                see([*found], np.stack([view for _, view in fresh.values()]), reading.layout)
            store.add_facts(found)
            known |= found
            fresh = {}
    for at, key in enumerate(keys):
        if key in known:
            source.stacks.update([at] * known[key].stack)
    return [broken.get(key) or (key, known[key]) for key in keys]


def _keys(source: Source, store: ImageStore, reading: Reading, some: Sequence[int]) -> list[bytes]:
    """Keys of images: from the content of files, otherwise from the state of the set."""
    how = (source.max_pixels, source.cut.tile if isinstance(source, Tiles) else None, reading)
    state = functools.cache(source.fingerprint)
    keys = list[bytes]()
    several = len(some) > _ENTERED
    with doing(f"reading {source.name}", len(some), "images", enabled=several) as work:
        for start in range(0, len(some), _ENTERED):
            part = some[start : start + _ENTERED]
            paths = [source.path(at) for at in part]
            of_files = iter(store.digests([path for path in paths if path is not None]))
            for at, path in zip(part, paths, strict=True):
                name = source.identifier(at)
                piece = name[len(file_of(name)) :]
                what = next(of_files) if path is not None else (source.whereabouts, state(), at)
                keys.append(key_of(what, piece, *how))
            work.update(len(keys))
    return keys
