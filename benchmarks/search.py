"""How long an exact search takes, and comparing all pairs, by the number of images.

    python benchmarks/search.py [--rounds 3]

Features are random, 512 dimensions in float32; the search keeps the 10 nearest of each query. The
largest bank takes 2 GB. A few minutes on one core.
"""

import argparse
from functools import partial

import torch
from measure import alternate, report

from mast.measure.duplicates import connected
from mast.measure.neighbours import nearest

DIMENSIONS, NEIGHBOURS = 512, 10
BANKS = (10_000, 100_000, 1_000_000)  # images that are searched
QUERIES = (1, 100)
PAIRS = (10_000, 20_000)  # images of which all pairs are compared
ABOVE = 0.99  # cosine of copies, which random features do not have


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="that count")
    options = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    bank_ND = torch.randn(max(BANKS), DIMENSIONS, generator=generator)
    query_MD = torch.randn(max(QUERIES), DIMENSIONS, generator=generator)
    tables = {
        f"{count:,} queries": {
            f"{images:,} images": partial(nearest, bank_ND[:images], query_MD[:count], NEIGHBOURS)
            for images in BANKS
        }
        for count in QUERIES
    } | {
        "all pairs": {
            f"{images:,} images": partial(connected, bank_ND[:images], ABOVE) for images in PAIRS
        }
    }
    device = torch.device("cpu")
    report(
        "search",
        device,
        {
            "dimensions": DIMENSIONS, "neighbours": NEIGHBOURS, "threads": 1,
            "rounds": options.rounds,
        },
        {case: alternate(work, options.rounds, device) for case, work in tables.items()},
        "s",
        f"{BANKS[0]:,} images",
    )  # fmt: skip


if __name__ == "__main__":
    main()
