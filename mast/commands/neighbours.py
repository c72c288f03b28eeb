"""Search a folder of images by image."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mast.commands.common import command, listing_file, open_search, or_default, write_listing
from mast.core.arguments import as_list
from mast.core.display import say
from mast.core.errors import UserError
from mast.core.files import named, out_file, spelling
from mast.core.kinds import Device, EncoderLike, PillowImage
from mast.core.table import Listing, columns_of, images_of

if TYPE_CHECKING:
    from mast.data import CanvasSet
    from mast.invariance.choice import SearchEncoder
    from mast.invariance.subspaces import Weights


COLUMNS = ("query", "rank", "path", "cosine")
Image: TypeAlias = str | Path | int | PillowImage
Pairs = Sequence[Image] | Sequence[tuple[Image, Image]]


@command
def neighbours(
    data: str | Path,
    query: Image | Sequence[Image],
    encoder: EncoderLike | None = None,
    k: int = 10,
    out: str | Path | None = None,
    size: int | None = None,
    ignore: str | Sequence[str] = (),
    match: str | Sequence[str] = (),
    same: Pairs = (),
    different: Pairs = (),
    space: str | Path | None = None,
    device: Device = "auto",
    weights: str | Path | None = None,
    download: bool = False,
    untrained: bool = False,
) -> Listing:
    """Find the images of a set that are most similar to a query, by cosine.

    Every image is compared. Features are cached for the next search.

    Args:
        data: The images to search.
        query: Image files, or images of the set by name (tried first) or by position from 0. In
            Python PIL images, too.
        k: Neighbors per query, without the query itself; fewer if the set is smaller.
        same: Pairs of images that should be near, named as in query; `--same A1 A2 B1 B2` are two
            pairs. Properties are weighted so that these pairs are near and those in different far.
            Excludes ignore and match.
        different: Pairs of images that should be far.
        space: A .json file of property weights, written with same and different, otherwise read,
            here and by all commands that take ignore and match; or "depths": all stages of the
            encoder, standardized.

    Returns:
        A row for each neighbor, the nearest first: `query` (for a position, the image's
        name), `rank` from 1, `path` in the set and `cosine`.
    """
    encoder = or_default(encoder, data)
    file = listing_file(out, *COLUMNS)
    import torch

    from mast.data.canvas import open_files
    from mast.encoders.load import EncoderOptions
    from mast.invariance.choice import InvarianceChoice
    from mast.invariance.pairs import is_weights, write_weights
    from mast.page import GalleryRow, Item, Thumbnails, View
    from mast.search.nearest import nearest

    pairs = {"same": _pairs("same", same), "different": _pairs("different", different)}
    by_pairs = any(pairs.values())
    if by_pairs and not all(pairs.values()):
        raise UserError("same and different: expected both or neither")
    invariances = InvarianceChoice(ignore, match, space, by_pairs)
    weights_file = out_file(space, {".json": is_weights}, "space") if by_pairs and space else None
    queries = [_file(image) for image in as_list(query)]
    if not queries:
        raise UserError("query: expected one or more images, got none")
    options = EncoderOptions(encoder, size, weights, download, untrained)
    by, canvases = open_search(options, data, invariances, device)
    positions = dict(_located(queries, data, canvases))
    outside = [name for name, own in positions.items() if own is None]
    others = open_files(outside, by.size, canvases.reading) if outside else None
    most = len(canvases) - (len(outside) < len(positions))
    if most < 1:
        raise UserError(f"data: expected images other than the query, got none in {canvases.name}")
    if k < 1:
        raise UserError(f"k: expected 1 to {most}, got {k}")
    k = min(k, most)
    if by_pairs:
        learned = _weights(by, canvases, data, pairs)
        numbers = ", ".join(f"{name} {value:.2g}" for name, value in learned.items())
        say(f"property weights fitted to your pairs (0 ignores, 1 is neutral): {numbers}")
        if weights_file is not None:
            assert by.adapted is not None
            write_weights(weights_file, learned, by.adapted, pairs)
        by = by.weighted(learned)

    bank_ND = by.features(canvases)
    extracted = {} if others is None else dict(zip(outside, by.extract(others), strict=True))
    query_MD = torch.stack(
        [extracted[name] if own is None else bank_ND[own] for name, own in positions.items()]
    )
    where, count = by.encoder.device, min(k + 1, len(canvases))
    cosine_MK, position_MK = nearest(bank_ND.to(where), query_MD.to(where), count)
    found = dict[str, list[tuple[int, float]]]()
    for (name, own), *near in zip(
        positions.items(), position_MK.tolist(), cosine_MK.tolist(), strict=True
    ):
        found[name] = [(at, cosine) for at, cosine in zip(*near, strict=True) if at != own][:k]
    rows = [
        (name, rank, canvases.identifiers[at], cosine)
        for name, near in found.items()
        for rank, (at, cosine) in enumerate(near, start=1)
    ]
    columns = columns_of(COLUMNS, rows)
    words = invariances.words or by.chosen  # as the user wrote it
    chosen = "".join(f"; {kind}: {', '.join(names)}" for kind, names in words.items())
    images = images_of(canvases.name, len(canvases), canvases.skipped)

    def view() -> list[View]:
        shown = dict[str, list[Item]]()
        for name, own in positions.items():
            source, at = (others, outside.index(name)) if own is None else (canvases, own)
            assert source is not None
            near = [Item(canvases, of, f"{cosine:.3f}") for of, cosine in found[name]]
            shown[name] = [Item(source, at, "the query", True), *near]
        lead = f"The {k} nearest of {images}, by cosine{chosen}."
        return [View("Nearest", lead, [GalleryRow(*of_one) for of_one in shown.items()])]

    write_listing(file, columns, "Nearest images", view)
    sections = {
        f"Nearest to {name}": range(at * k, at * k + k) for at, name in enumerate(positions)
    }
    return Listing(columns, sections, file, grouped_by="query", picture=Thumbnails(canvases))


def _file(image: Image) -> str:
    """The name of a query; an image of Pillow is written to a file."""
    from mast.data import set_name

    return (
        str(next(Path(set_name([image])).iterdir()))
        if isinstance(image, PillowImage)
        else str(image)
    )


def _pairs(kind: str, named: Pairs) -> list[tuple[str, str]]:
    """Pairs, from a list of pairs or a flat list of images."""
    single = [_file(image) for each in as_list(named) for image in as_list(each)]
    whole = all(len(as_list(each)) in (1, 2) for each in as_list(named))
    pairs = list(zip(single[::2], single[1::2], strict=False))
    if len(single) % 2 or not whole or any(first == second for first, second in pairs):
        raise UserError(f"{kind}: expected pairs of two images, got {', '.join(single)}")
    return pairs


def _weights(
    by: SearchEncoder,
    canvases: CanvasSet,
    data: str | Path,
    pairs: Mapping[str, Sequence[tuple[str, str]]],
) -> Weights:
    """Fit the weight of each property to pairs."""
    import torch

    from mast.data.canvas import open_files
    from mast.invariance.pairs import weights_of

    assert by.adapted is not None
    names = list(dict.fromkeys(name for kind in pairs.values() for pair in kind for name in pair))
    bank_NF = by.depths(canvases)
    seen = dict[str, torch.Tensor]()
    for name, (_, at) in zip(names, _located(names, data, canvases), strict=True):
        other = None if at is not None else open_files([name], by.size, canvases.reading)
        seen[name] = bank_NF[at] if other is None else by.depths(other, keep=False)[0]
    same_2PF, different_2PF = (
        torch.stack([torch.stack([seen[pair[end]] for pair in pairs[kind]]) for end in (0, 1)])
        for kind in ("same", "different")
    )
    return weights_of(by.adapted, same_2PF, different_2PF, bank_NF)


def _located(
    queries: Sequence[str], data: str | Path, canvases: CanvasSet
) -> list[tuple[str, int | None]]:
    """The name of each query and its position in the set; None for a file outside the set.

    A query by position has the name of that image.
    """
    from mast.data.pieces import split_cut

    places = {spelling(name): at for at, name in enumerate(canvases.identifiers)}
    root = named(split_cut(str(data))[0])
    root = root.parent if root.is_file() else root
    located = list[tuple[str, int | None]]()
    for query in queries:
        file = named(query)
        ways = [query, os.path.abspath(file)]  # the second of a list
        is_file = os.path.isfile(file)
        if is_file:
            ways += [Path(os.path.relpath(plain(file), plain(root))).as_posix()
                     for plain in (os.path.abspath, os.path.realpath)]  # fmt: skip
        at = next((places[way] for way in map(spelling, ways) if way in places), None)
        if at is not None or is_file:
            located.append((query, at))
        elif query.isdecimal() and int(query) < len(canvases):
            located.append((canvases.identifiers[int(query)], int(query)))
        else:
            broken = {spelling(name): why for name, why in canvases.skipped.items()}
            rest = f", which is broken: {why}" if (why := broken.get(spelling(query))) else ""
            raise UserError(
                f"query: expected an image of {data}, by name or by position below "
                f"{len(canvases)}, or a file, got {query!r}{rest}"
            )
    return located
