"""How long a search takes, reading the features that it needs, and comparing all pairs of images.

    python benchmarks/search.py [--rounds 3] [--images 10000 100000 1000000]
    python benchmarks/search.py --copies 1000000

Features have 512 dimensions in float32 and come from a mixture of clusters; a search keeps the 10
nearest of each query. A million images take 5 GB. Five minutes on one core. With `--copies`, the
last of so many images are copies of the first, one in a hundred, which an index is to find: ten
minutes on two cores.
"""

import argparse
import resource
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import RESULTS, alternate, report
from torch import Tensor

from mast.core.checkpoint import write_json
from mast.core.run import provenance
from mast.data.store import ImageStore, key_of
from mast.search.duplicates import MARGIN, grouped
from mast.search.nearest import nearest

DIMENSIONS, NEIGHBOURS = 512, 10
BANKS = (10_000, 100_000, 1_000_000)  # images that are searched
QUERIES = (1, 100, 1_000)
PAIRS = (10_000, 20_000)  # images of which all pairs are compared
ABOVE = 0.99  # cosine of copies, which these features do not have
FAINT = 0.02  # noise that makes a copy
CLUSTERS, INTRINSIC, NOISE = 1_000, 32, 0.3  # of the mixture; docs/log.md compares it with photos


def mixture(images: int, generator: torch.Generator) -> Tensor:
    """Clusters that overlap, in some directions of the space, with noise in all of them."""
    fixed = torch.Generator().manual_seed(1)
    centre_CI = torch.randn(CLUSTERS, INTRINSIC, generator=fixed)
    turned_ID = torch.randn(INTRINSIC, DIMENSIONS, generator=fixed) / INTRINSIC**0.5
    features_ND = NOISE * torch.randn(images, DIMENSIONS, generator=generator)
    for part_BD in features_ND.split(2**16):
        of_B = torch.randint(CLUSTERS, (len(part_BD),), generator=generator)
        within_BI = torch.randn(len(part_BD), INTRINSIC, generator=generator)
        part_BD.addmm_(centre_CI[of_B] + within_BI, turned_ID)
    return features_ND


def copies(images: int) -> dict[str, Any]:
    """How many copies an index finds, the seconds and the memory."""
    planted, generator = images // 100, torch.Generator().manual_seed(0)
    x_ND = mixture(images, generator)
    x_ND[-planted:] = x_ND[:planted] + FAINT * torch.randn(planted, DIMENSIONS, generator=generator)
    begun = time.perf_counter()
    first_N = grouped(x_ND, ABOVE, MARGIN)
    seconds, own_N = time.perf_counter() - begun, np.arange(images)
    return {
        "images": images, "seconds": seconds, "threads": torch.get_num_threads(),
        "found": float((first_N[-planted:] == own_N[:planted]).mean()),
        "wrong": int((first_N[:-planted] != own_N[:-planted]).sum()),
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="that count")
    parser.add_argument("--images", type=int, nargs="+", default=BANKS, help="that are searched")
    parser.add_argument("--copies", type=int, default=0, help="images among which copies are")
    options = parser.parse_args()
    if options.copies:
        result = {**copies(options.copies), "provenance": provenance()}
        write_json(RESULTS / "search-copies.json", result)
        return
    torch.set_num_threads(1)
    device, rounds, banks = torch.device("cpu"), options.rounds, sorted(options.images)
    generator = torch.Generator().manual_seed(0)
    query_MD = mixture(max(QUERIES), generator)
    bank_ND = mixture(max(*banks, *PAIRS), generator)
    tables = {
        f"{count:,} queries": {
            f"{images:,} images": partial(nearest, bank_ND[:images], query_MD[:count], NEIGHBOURS)
            for images in banks
        }
        for count in QUERIES
    } | {
        "all pairs": {
            f"{images:,} images": partial(grouped, bank_ND[:images], ABOVE) for images in PAIRS
        }
    }
    with tempfile.TemporaryDirectory() as folder:
        store, keys = ImageStore(Path(folder)), [key_of(at) for at in range(banks[-1])]
        for images in banks:
            store.add_features(str(images), keys[:images], bank_ND[:images].numpy())
        tables["reading"] = {
            f"{images:,} images": partial(store.features, str(images), keys[:images])
            for images in banks
        }
        cases = {case: alternate(work, rounds, device) for case, work in tables.items()}
    report(
        "search",
        device,
        {
            "dimensions": DIMENSIONS, "neighbours": NEIGHBOURS, "threads": 1, "rounds": rounds,
            "clusters": CLUSTERS, "intrinsic": INTRINSIC, "noise": NOISE,
        },
        cases,
        "s",
        f"{banks[0]:,} images",
    )  # fmt: skip


if __name__ == "__main__":
    main()
