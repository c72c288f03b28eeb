"""An approximate search: images are sorted into lists, and a query is compared with a few of them.

Beyond a million images, where comparing all takes too long. What is kept on disk are the lists'
centres, the list of each image, how many lists are searched, and the recall that this gave.

N images in the bank, M queries, D dimensions, L lists, K neighbours, S images of the bank that are
searched for to measure the recall, B images at a time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mast.core.display import doing, track
from mast.core.errors import UserError
from mast.core.tensors import DIGEST, read_metadata, read_tensors, write_tensors
from mast.evaluation.neighbours import directions, nearest

_log = logging.getLogger("mast")

VERSION = 1  # of how lists are made; a new one ignores all older files
DEPTH = 100  # neighbours up to which the recall is measured; no more are searched for
TUNED, WANTED = 10, 0.95  # of so many neighbours this share is to be found
SAMPLE = 200  # images that choose how many lists are searched, and as many that judge it
LEARNED = 40  # images a list from which its centre is learned; faiss warns of fewer
ITERATIONS = 10  # of k-means
GAIN = 0.05  # share of the lists above which many queries are as quick with all images
ROUNDING = 1e-6  # cosines that differ by less are the same
_AT_ONCE = 2**13  # images that are sorted at a time


class Lists(NamedTuple):
    """How a bank is sorted, and what searching a part of it is worth."""

    centre_LD: Tensor  # unit vectors; an image is in the list of the largest cosine
    list_N: Tensor  # the list of each image, int64
    probes: int  # how many lists a query is compared with
    recall_K: Tensor  # share of the 1, 2, … nearest others that are found


@dataclass(frozen=True)
class ApproximateIndex:
    """A bank that is searched in part: how it is sorted, and faiss's index of its unit vectors."""

    lists: Lists
    inverted: Any

    def recall(self, k: int) -> float:
        """The share of the k nearest others that are found, as measured on images of the bank."""
        return float(self.lists.recall_K[k - 1])

    def nearest(self, queries_MD: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """As `neighbours.nearest` on the CPU, but some of the nearest may be missing.

        More lists are searched where the usual ones hold fewer than k images.
        """
        probes = self.lists.probes
        while True:
            similarity_MK, position_MK = _search(self.inverted, queries_MD, k, probes)
            if bool((position_MK >= 0).all()):
                return similarity_MK, position_MK
            assert probes < self.inverted.nlist, "all lists together hold k images"
            probes *= 2


def check_installed() -> None:
    """Refuse an approximate search before anything is done for it."""
    if find_spec("faiss") is None:
        raise UserError("an approximate search needs `pip install 'mast-ssl[search]'`")


def check_depth(k: int, images: int) -> None:
    """Refuse more neighbours than the recall is measured for."""
    depth = min(DEPTH, images - 1)
    if k > depth:
        raise UserError(
            f"an approximate search finds up to {depth} neighbours among {images:,} images, got "
            f"k {k}: leave approximate out"
        )


def open_index(bank_ND: Tensor, features: Path | None, encoder: str) -> ApproximateIndex:
    """The index of a bank, as it was kept beside the file of its features, or built and then kept.

    The bank holds two images or more, on the CPU. `features` is the file of its features; None
    keeps nothing. `encoder` identifies what made the bank of them, in its space.
    """
    index = _kept(bank_ND, features, encoder) if features is not None else build(bank_ND)
    count = index.inverted.nlist
    if index.lists.probes > GAIN * count:
        _log.warning(
            "an index gains nothing here: to find %.0f %% of the nearest it searches %s of %s "
            "lists; leave approximate out",
            100 * WANTED, f"{index.lists.probes:,}", f"{count:,}",
        )  # fmt: skip
    return index


def _kept(bank_ND: Tensor, features: Path, encoder: str) -> ApproximateIndex:
    """An index whose lists are on the disk, or are written there."""
    about = {"version": VERSION, "features": features.stem, "encoder": encoder}
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:8]
    path = features.with_name(f"{features.stem}-lists-{key}.safetensors")
    lists = _read(path, about)
    if lists is not None and len(lists.list_N) == len(bank_ND):
        return ApproximateIndex(lists, _filled(bank_ND, lists.centre_LD, lists.list_N))
    index = build(bank_ND)
    tensors = index.lists._asdict() | {"probes": torch.tensor(index.lists.probes)}
    try:
        write_tensors(path, tensors, about)
    except UserError as error:  # a full disk costs the next search time, not this one
        _log.warning("the index is not kept for the next search: %s", error)
    return index


def build(bank_ND: Tensor) -> ApproximateIndex:
    """Sort a bank of two images or more into lists, and find how many of them a query must search.

    That is the least power of two by which `WANTED` of the `TUNED` nearest others of some images of
    the bank are found. The recall is measured on others than these, where there are enough.
    """
    order_N = torch.randperm(len(bank_ND), generator=torch.Generator().manual_seed(0))
    count = max(1, min(round(2 * math.sqrt(len(bank_ND))), len(bank_ND) // LEARNED))
    with doing(f"learning the centres of {count:,} lists"):
        centre_LD = _centres(bank_ND[order_N[: count * LEARNED]], count)
    list_N = torch.cat([(unit_BD @ centre_LD.T).argmax(dim=1) for unit_BD in _units(bank_ND)])
    inverted = _filled(bank_ND, centre_LD, list_N)
    depth = min(DEPTH, len(bank_ND) - 1)
    with doing("measuring the recall"):
        chosen_by, judged_by = (
            (bank_ND[at_S], nearest(bank_ND, bank_ND[at_S], depth + 1)[0])
            for at_S in (order_N[:SAMPLE], order_N[-SAMPLE:])
        )
        probes = 1
        while probes < count and _recalls(inverted, *chosen_by, probes)[:TUNED][-1] < WANTED:
            probes = min(2 * probes, count)
        recall_K = _recalls(inverted, *judged_by, probes)
    return ApproximateIndex(Lists(centre_LD, list_N, probes, recall_K), inverted)


def _read(path: Path, about: Mapping[str, Any]) -> Lists | None:
    """Lists from a file; None where there is none, or it is not what was written for these."""
    if not path.is_file():
        return None
    remedy = "the index is built again"
    try:
        tensors, header = read_tensors(path, remedy)
    except UserError as error:
        _log.warning("%s", error)
        return None
    metadata = read_metadata(header)
    if metadata.pop(DIGEST, None) is None or metadata != about:
        _log.warning("%s is not the index of these features: %s", path, remedy)
        return None
    centre_LD, list_N, recall_K = (tensors[name] for name in ("centre_LD", "list_N", "recall_K"))
    return Lists(centre_LD, list_N, int(tensors["probes"]), recall_K)


def _faiss() -> Any:
    """The library, with as many threads as PyTorch."""
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss


def _units(bank_ND: Tensor) -> Iterator[Tensor]:
    """Unit vectors of a bank, some at a time."""
    parts = math.ceil(len(bank_ND) / _AT_ONCE)
    for features_BD in track(bank_ND.split(_AT_ONCE), "sorting images", parts):
        yield directions(features_BD)


def _centres(learned_ED: Tensor, count: int) -> Tensor:
    """Centres of some features by k-means, as unit vectors."""
    means = _faiss().Kmeans(
        learned_ED.shape[1], count, niter=ITERATIONS, spherical=True, seed=0,
        min_points_per_centroid=1, max_points_per_centroid=LEARNED,
    )  # fmt: skip
    means.train(directions(learned_ED).numpy())
    return torch.from_numpy(means.centroids)


def _filled(bank_ND: Tensor, centre_LD: Tensor, list_N: Tensor) -> Any:
    """The index of faiss, from lists that are known."""
    faiss = _faiss()
    dimensions = centre_LD.shape[1]
    quantizer = faiss.IndexFlatIP(dimensions)
    quantizer.add(centre_LD.numpy())
    inverted = faiss.IndexIVFFlat(quantizer, dimensions, len(centre_LD), faiss.METRIC_INNER_PRODUCT)
    for unit_BD, list_B in zip(_units(bank_ND), list_N.split(_AT_ONCE), strict=True):
        unit, at = unit_BD.numpy(), list_B.numpy()
        inverted.add_core(len(unit), faiss.swig_ptr(unit), None, faiss.swig_ptr(at))
    return inverted


def _search(inverted: Any, queries_MD: Tensor, k: int, probes: int) -> tuple[Tensor, Tensor]:
    """Cosines, nearest first, and positions; -1 where the lists hold too few."""
    parameters = _faiss().SearchParametersIVF(nprobe=min(probes, inverted.nlist))
    unit_MD = directions(queries_MD).numpy()
    similarity_MK, position_MK = inverted.search(unit_MD, k, params=parameters)
    return torch.from_numpy(similarity_MK).clamp_(-1, 1), torch.from_numpy(position_MK)


def _recalls(inverted: Any, queries_SD: Tensor, truth_SK: Tensor, probes: int) -> Tensor:
    """Share of the 1, 2, … nearest others of some images of the bank that are found."""
    found_SK, _ = _search(inverted, queries_SD, truth_SK.shape[1], probes)
    return torch.stack(
        [
            (found_SK[:, 1 : k + 1] >= truth_SK[:, k, None] - ROUNDING).float().mean()
            for k in range(1, truth_SK.shape[1])
        ]
    )
