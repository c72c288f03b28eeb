"""Learn how operators move the features of any encoder, so that its invariance can be chosen."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, final
from zlib import crc32

import torch
from torch import nn

from mast.augment import OPERATORS, named_operators, operators_for
from mast.core.checkpoint import check_writable, write_text
from mast.core.compute import Compute
from mast.core.display import doing, say, track
from mast.core.errors import UserError, counted
from mast.core.files import default_cache, out_folder, short_name
from mast.core.kinds import Device
from mast.core.launch import find_device
from mast.core.run import provenance
from mast.core.table import Shown, TextTable
from mast.data import CanvasSet, DataConfig, open_photos, set_name
from mast.data.store import key_of
from mast.encoders.changes import acting_on, changed_by
from mast.encoders.fingerprint import fingerprint
from mast.encoders.frozen import FrozenEncoder
from mast.encoders.load import ADAPTED, EncoderOptions, Loaded, frozen, load
from mast.invariance.adapted import VERSION, Adapted, open_adapted, save_adapted
from mast.invariance.subspaces import ROUNDING, Subspaces, is_steady
from mast.models import Depths, Encoder, save_encoder
from mast.models.depths import OUTPUT
from mast.models.encoders import copied

MEASURED = "measured.txt"  # the keys of the images, in the same folder
ALIKE = 0.8  # of these, which would be chosen again
FEWEST, IMAGES = 10, 150  # that are looked at (benchmarks/photos_measured.py)
ENCODER = "encoder.safetensors"
# What is drawn where "whatever its color" and "whichever way up" are meant.
STRONGER: Mapping[str, Mapping[str, Any]] = {
    "rotate": {"angle": (-180.0, 180.0)},
    "color_jitter": {"hue": 0.5, "saturation": 0.4},
}


@final
@dataclass(frozen=True, repr=False)
class Adaptation(Shown):
    """What `mast adapt` found.

    Attributes:
        path: The folder that `--ignore` and `--match` of other commands take; None: not written.
        adapted: The encoder with its subspaces, taken wherever an encoder is: by its last map, if
            nothing is chosen.
        images: How many were looked at.
        left_out: Operators that did not change them.
    """

    path: Path | None
    adapted: Adapted
    images: int
    left_out: tuple[str, ...] = ()

    def shown(self) -> list[TextTable | str]:
        """How far each operator moves an image, and along how many axes."""
        table = TextTable(title=f"How operators move {self.images} images")
        table.add_column("operator")
        for column in ("changes", "mean square displacement, % of variance", "axes of 90 % of it"):
            table.add_column(column, justify="left" if column == "changes" else "right")
        total = float(len(self.adapted.depths.layers))
        for name, moves_RF in self.adapted.subspaces.factors.items():
            value_R = moves_RF.square().sum(dim=1)
            axes = int((value_R.cumsum(0) < 0.9 * value_R.sum()).sum()) + 1
            share = f"{100 * float(value_R.sum()) / total:.0f}"
            table.add_row(name, OPERATORS[name].changes, share, str(axes))
        lines = [f"left out, as they did not change the images: {', '.join(self.left_out)}"]
        if len(self.adapted.depths.layers) == 1:
            lines.append("only the output was read: layers names depths, without which little is "
                         "left to match")  # fmt: skip
        return [table, *(lines if self.left_out else lines[1:])]


def adapt(
    data: str | Path,
    options: EncoderOptions,
    images: int,
    out: str | Path | None,
    layers: str | Sequence[str] | None,
    operators: str | Sequence[str] | None,
    device: Device,
    max_broken: float,
) -> Adaptation:
    """Measure how operators move an encoder's features, as `mast.commands.adapt` says."""
    if images < FEWEST:
        raise UserError(f"images must be {FEWEST} or more, got {images}")
    encoder, seed, compute = options.run, options.seed, Compute(find_device(device))
    loaded = load(*options)
    whole = at_depths(loaded, encoder, layers)
    depths = cast(Depths, whole.module)
    named = _named(operators, depths.channels)
    folder = None
    if out is not None or not isinstance(encoder, nn.Module):
        folder = out_folder(out or Path("runs") / short_name(f"{loaded.folder.name}-adapted"))
        _check_ours(folder)
        check_writable(folder)
    config = DataConfig(set_name(data), max_broken=max_broken)
    canvases = _some(open_photos(config, loaded.size, depths), images, seed)
    adapted = _moved(frozen(whole, encoder, compute), canvases, named, seed)
    if folder is not None:
        (folder / ENCODER).unlink(missing_ok=True)  # an earlier encoder's
        save_adapted(adapted, folder, _about(canvases, str(data), seed))
        if isinstance(depths.encoder, Encoder):
            save_encoder(depths.encoder, folder / ENCODER)
    left_out = tuple(name for name in named if name not in adapted.operators)
    return Adaptation(folder, adapted, len(canvases), left_out)


def measured(
    whole: Loaded, source: str | Path | nn.Module, canvases: CanvasSet, compute: Compute
) -> Adapted | None:
    """An encoder, adapted on some of the photos that it is to compare; kept in the cache.

    Photos are chosen by their content. What was measured before is used again where four in five of
    its photos would be chosen now.

    Returns:
        The adapted encoder; None for fewer photos than are needed, in which case a line says so.
    """
    if (different := len({*canvases.pixel_digests})) < FEWEST:
        say(
            f"{canvases.name} has {counted(different, 'different photo')}, and ignore and match "
            f"need {FEWEST}: comparing the encoder's own features"
        )
        return None
    depths, some = cast(Depths, whole.module), _some(canvases, IMAGES, 0)
    identity = fingerprint(depths, {"layers": depths.layers, "size": depths.size})
    of_encoder = default_cache() / "measured" / key_of(identity, VERSION, ROUNDING).hex()
    if (before := _most_alike(of_encoder, some)) is not None:
        with suppress(UserError):  # damaged, or of a module with the same weights and other code
            return open_adapted(before, depths.encoder)
    begun = time.monotonic()
    exact = replace(compute, dtype=torch.float32)
    of_depths = frozen(whole, source, exact, cache=False)
    adapted = _moved(of_depths, some, _named(None, depths.channels), 0)
    folder = of_encoder / key_of(*some.keys).hex()
    kept = "kept for later searches"
    if compute.rank == 0:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            save_adapted(adapted, folder, _about(some, canvases.name, 0))
            write_text(folder / MEASURED, "\n".join(key.hex() for key in some.keys))
        except (UserError, OSError) as error:  # a full disk costs the next search time, not this
            kept = f"not kept: {error}"
    if compute.fabric is not None:
        compute.fabric.barrier()
    say(
        f"measured how {len(adapted.operators)} operators change {len(some)} of the photos "
        f"({time.monotonic() - begun:.0f} s; {kept})"
    )
    if not (folder / ADAPTED).is_file():
        return adapted
    return open_adapted(folder, depths.encoder)  # whose rounding is that of the next call


def _most_alike(folder: Path, images: CanvasSet) -> Path | None:
    """What was measured on the most of some images, if on enough of them."""
    wanted, found = {key.hex() for key in images.keys}, dict[Path, float]()
    for file in sorted(folder.glob(f"*/{MEASURED}")):
        with suppress(OSError):
            of = {*file.read_text().split()}
            found[file.parent] = len(wanted & of) / max(len(wanted), len(of))
    best = max(found, key=lambda place: found[place], default=None)
    return best if best is not None and found[best] >= ALIKE else None


def _named(operators: str | Sequence[str] | None, channels: int) -> Sequence[str]:
    """The operators to look at."""
    known = operators_for(channels)
    return acting_on(named_operators(operators, known) or known, channels)


def at_depths(
    loaded: Loaded, source: str | Path | nn.Module, layers: str | Sequence[str] | None = None
) -> Loaded:
    """All depths of an encoder, or of a copy where it is the user's own.

    If no layers are given those are read that a module names.
    """
    if isinstance(source, nn.Module):
        loaded = loaded._replace(module=copied(loaded.module))
    names = getattr(loaded.module, "layers", None)
    named = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    layers = names if layers is None and named else layers
    return loaded_depths(Depths(loaded.module, loaded.size, layers).eval())


def loaded_depths(depths: Depths) -> Loaded:
    """Depths, with what tells their features from those of others."""
    about = depths.encoder.describe() if isinstance(depths.encoder, Encoder) else {}
    return Loaded(depths, depths.size, {**about, "layers": list(depths.layers)}, Path())


def _moved(source: FrozenEncoder, canvases: CanvasSet, named: Sequence[str], seed: int) -> Adapted:
    """An encoder with what the named operators do to its features of some images."""
    depths = source.module
    assert isinstance(depths, Depths)
    canvases = canvases.with_views(depths.size)
    features_NF = source.features(canvases, depths.size)
    parts = zip(depths.layers, features_NF.split(depths.widths, dim=1), depths.sizes, strict=True)
    steady = [name for name, part_NC, size in parts if is_steady(part_NC, size)]
    if OUTPUT in steady:
        raise UserError(f"the encoder gives the same features of all {len(canvases)} images")
    places = torch.arange(features_NF.shape[1]).split(depths.widths)
    columns = dict(zip(depths.layers, places, strict=True))
    if steady:
        say(f"left out, as they are the same of all images: {', '.join(steady)}")
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


def _about(canvases: CanvasSet, data: str, seed: int) -> dict[str, Any]:
    """What subspaces were found with."""
    return {
        "images": len(canvases),
        "data": data,
        "fingerprint": canvases.fingerprint,
        "seed": seed,
        "provenance": provenance(),
    }


def _check_ours(folder: Path) -> None:
    """Refuse a folder of something else, such as a run, or with results, which would be mixed."""
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set[str]()
    ours = {ADAPTED, ENCODER} if ADAPTED in names else set[str]()
    if others := {name for name in names if not name.startswith(".")} - ours:
        raise UserError(
            f"out: {folder} has {min(others)}, which `mast adapt` did not write: name another "
            "folder, or remove it"
        )


def _some(canvases: CanvasSet, images: int, seed: int) -> CanvasSet:
    """So many different images of a set, drawn by a hash of their content."""
    first = {digest: at for at, digest in reversed([*enumerate(canvases.pixel_digests)])}
    if len(first) < FEWEST:
        raise UserError(
            f"{canvases.name} has {len(first)} different images: {FEWEST} or more are needed, some "
            "300 are better"
        )
    drawn = sorted(first, key=lambda digest: (crc32(digest, seed), first[digest]))[:images]
    return canvases.part(sorted(first[digest] for digest in drawn))
