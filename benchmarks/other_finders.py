"""Pairs of like images that another program finds, for `copies.py`.

    python benchmarks/other_finders.py fastdup|czkawka|imagededup FOLDER OUT

They run with their defaults, in an interpreter where they are installed and `mast` need not be:
`pip install fastdup czkawka imagededup`.
"""

import itertools
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path


def by_fastdup(folder: str) -> Iterable[list[str]]:
    """Its connected components."""
    import fastdup

    groups = defaultdict[int, list[str]](list)
    with tempfile.TemporaryDirectory() as work:
        found = fastdup.create(work_dir=work, input_dir=folder)
        found.run(print_summary=False)
        table, _ = found.connected_components()
    for component, file in zip(table["component_id"], table["filename"], strict=True):
        groups[component].append(file)
    return groups.values()


def by_czkawka(folder: str) -> Iterable[list[str]]:
    """Its groups."""
    from czkawka import ImageSimilarity

    finder = ImageSimilarity()
    finder.set_directories([folder])
    return [[*map(str, group)] for group in finder.find_similar()]


def by_imagededup(folder: str) -> Iterable[list[str]]:
    """Its pairs by perceptual hash: its network downloads weights."""
    from imagededup.methods import PHash

    finder = PHash(verbose=False)
    found = finder.find_duplicates(encoding_map=finder.encode_images(image_dir=folder))
    return [[file, other] for file, others in found.items() for other in others]


FINDERS = {"fastdup": by_fastdup, "czkawka": by_czkawka, "imagededup": by_imagededup}

if __name__ == "__main__":
    program, folder, out = sys.argv[1:]
    begun = time.monotonic()
    groups = FINDERS[program](folder)
    seconds = time.monotonic() - begun
    names = (sorted(Path(file).name for file in group) for group in groups)
    pairs = [pair for group in names for pair in itertools.combinations(group, 2)]
    found = {"pairs": pairs, "seconds": seconds, "version": version(program)}
    Path(out).write_text(json.dumps(found))
