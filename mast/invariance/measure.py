"""Measure how operators move the features of any encoder, so that invariances can be chosen."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import torch
from torch import nn

from mast.augment import named_operators, operators_for
from mast.core.checkpoint import write_text
from mast.core.compute import Compute
from mast.core.display import doing, say, track
from mast.core.errors import UserError
from mast.core.files import default_cache
from mast.data import CanvasSet
from mast.data.store import key_of
from mast.encoders.changes import acting_on, changed_by
from mast.encoders.fingerprint import fingerprint
from mast.encoders.frozen import FrozenEncoder
from mast.encoders.load import ADAPTED, Loaded, frozen
from mast.invariance.adapted import VERSION, Adapted, load_adapted, save_adapted
from mast.invariance.subspaces import ROUNDING, Subspaces, is_steady
from mast.models import Encoder
from mast.models.depths import OUTPUT, Depths
from mast.models.encoders import copied

MEASURED = "measured.txt"  # the keys of the images, in the same folder
ALIKE = 0.8  # share of these that must be chosen again
FEWEST, IMAGES = 10, 150  # photos to measure on (benchmarks/photos_measured.py)
# Stronger magnitudes, so that color and orientation are ignored completely.
STRONGER: Mapping[str, Mapping[str, Any]] = {
    "rotate": {"angle": (-180.0, 180.0)},
    "color_jitter": {"hue": 0.5, "saturation": 0.4},
}


def measured(
    whole: Loaded, source: str | Path | nn.Module, canvases: CanvasSet, compute: Compute
) -> Adapted | None:
    """Adapt an encoder on a sample of the photos to compare, or load a cached measurement.

    Photos are sampled by content. A cached measurement is reused if four fifths of its photos would
    be sampled again.

    Returns:
        The adapted encoder; None, with a message, for too few photos.
    """
    if (different := len({*canvases.pixel_digests})) < FEWEST:
        say(
            f"ignore and match need {FEWEST} different photos, got {different} in {canvases.name}: "
            "comparing the encoder's plain features"
        )
        return None
    depths, some = cast(Depths, whole.module), some_of(canvases, IMAGES, 0)
    identity = fingerprint(depths, {"layers": depths.layers, "size": depths.size})
    of_encoder = default_cache() / "measured" / key_of(identity, VERSION, ROUNDING).hex()
    if (before := _most_alike(of_encoder, some)) is not None:
        with suppress(UserError):  # damaged, or of a module whose code changed
            return load_adapted(before, depths.encoder)
    begun = time.monotonic()
    exact = replace(compute, dtype=torch.float32)
    of_depths = frozen(whole, source, exact, cache=False)
    adapted = moved(of_depths, some, operators_of(None, depths.channels), 0)
    folder = of_encoder / key_of(*some.keys).hex()
    kept = "cached"
    if compute.rank == 0:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            save_adapted(adapted, folder, some, canvases.name, 0)
            write_text(folder / MEASURED, "\n".join(key.hex() for key in some.keys))
        except (UserError, OSError) as error:  # a full disk must not stop this search
            kept = f"not cached: {error}"
    if compute.fabric is not None:
        compute.fabric.barrier()
    say(
        f"measured how {len(adapted.operators)} operators change {len(some)} of the photos "
        f"({time.monotonic() - begun:.0f} s; {kept})"
    )
    if not (folder / ADAPTED).is_file():
        return adapted
    return load_adapted(folder, depths.encoder)  # so that rounding equals that of the next call


def _most_alike(folder: Path, images: CanvasSet) -> Path | None:
    """The cached measurement with the most of these images, if they are enough."""
    wanted, found = {key.hex() for key in images.keys}, dict[Path, float]()
    for file in sorted(folder.glob(f"*/{MEASURED}")):
        with suppress(OSError):
            of = {*file.read_text().split()}
            found[file.parent] = len(wanted & of) / max(len(wanted), len(of))
    best = max(found, key=lambda place: found[place], default=None)
    return best if best is not None and found[best] >= ALIKE else None


def operators_of(operators: str | Sequence[str] | None, channels: int) -> Sequence[str]:
    """The operators to measure."""
    known = operators_for(channels)
    return acting_on(named_operators(operators, known) or known, channels)


def at_depths(
    loaded: Loaded, source: str | Path | nn.Module, layers: str | Sequence[str] | None = None
) -> Loaded:
    """All stages of an encoder, or of a copy if it is the user's own.

    By default, the layers that the module's attribute names.
    """
    if isinstance(source, nn.Module):
        loaded = loaded._replace(module=copied(loaded.module))
    names = getattr(loaded.module, "layers", None)
    named = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    layers = names if layers is None and named else layers
    return loaded_depths(Depths(loaded.module, loaded.size, layers).eval())


def loaded_depths(depths: Depths) -> Loaded:
    """The stages, with a description for the cache."""
    about = depths.encoder.describe() if isinstance(depths.encoder, Encoder) else {}
    return Loaded(depths, depths.size, {**about, "layers": list(depths.layers)}, Path())


def moved(source: FrozenEncoder, canvases: CanvasSet, named: Sequence[str], seed: int) -> Adapted:
    """Measure how the named operators move an encoder's features of some images."""
    depths = source.module
    assert isinstance(depths, Depths)
    canvases = canvases.with_views(depths.size)
    features_NF = source.features(canvases, depths.size)
    parts = zip(depths.layers, features_NF.split(depths.widths, dim=1), depths.sizes, strict=True)
    steady = [name for name, part_NC, size in parts if is_steady(part_NC, size)]
    if OUTPUT in steady:
        raise UserError(f"encoder: gives equal features for all {len(canvases)} images")
    places = torch.arange(features_NF.shape[1]).split(depths.widths)
    columns = dict(zip(depths.layers, places, strict=True))
    if steady:
        say(f"layers left out, as their features are equal for all images: {', '.join(steady)}")
        moving = [name for name in depths.layers[:-1] if name not in steady]
        depths = Depths(depths.encoder, depths.size, moving).eval()
    columns_F = torch.cat([columns[name] for name in depths.layers])
    features_NF = features_NF[:, columns_F]
    changed = {}
    for at, name in enumerate(track(named, "operators", len(named), "operators")):
        drawn = STRONGER.get(name, {})
        change = changed_by(name, None, depths.size, len(canvases), seed + at, **drawn)
        changed[name] = source.features(canvases, depths.size, change)[:, columns_F]
    with doing("axes of each operator"):
        subspaces = Subspaces.of(features_NF, changed, depths.widths)
    if not subspaces.factors:
        raise UserError(f"none of the operators moves the features of {canvases.name}")
    return Adapted(depths.cpu(), subspaces).eval()


def some_of(canvases: CanvasSet, images: int, seed: int) -> CanvasSet:
    """A sample of different images, drawn by a hash of their content."""
    first = {digest: at for at, digest in reversed([*enumerate(canvases.pixel_digests)])}
    if len(first) < FEWEST:
        raise UserError(
            f"data: expected {FEWEST} different images or more (300 are better), got {len(first)} "
            f"in {canvases.name}"
        )
    drawn = sorted(first, key=lambda digest: (crc32(digest, seed), first[digest]))[:images]
    return canvases.part(sorted(first[digest] for digest in drawn))
