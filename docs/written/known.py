"""What is known of an encoder beside what is measured of it."""

import json

from mast.analyses import Grid
from paper.tables.printed import as_markdown
from written.result_files import RESULTS, ROOT

FILE = ROOT / "benchmarks" / "results" / "known_accuracy.json"


def known() -> str:
    """Networks of published accuracy by their own heads and by the protocols; scikit-learn's."""
    result = json.loads(FILE.read_text())
    networks, setting = result["networks"], result["setting"]
    rows = tuple(
        (
            f"ResNet-{network['depth']}",
            f"{network['published']:.2f}",
            *(
                f"{one['top1']:.2f} [{one['low']:.1f}, {one['high']:.1f}]"
                for one in network["measured"].values()
            ),
        )
        for network in networks
    )
    measured = (name.replace("knn", "kNN") for name in networks[0]["measured"])
    images = networks[0]["images"]
    against = json.loads((RESULTS / "protocols.json").read_text())["agreement with scikit-learn"]
    repository = setting["repository"]
    return (
        f"{as_markdown(Grid(('network', 'published', *measured), rows))}\n\n"
        f"Percent of the {images['test']:,} test images of CIFAR-10, with 95 % intervals; kNN and "
        f"linear probe learn from the {images['train']:,} training images, as the networks did. "
        f"Weights of [{repository}](https://github.com/{repository}), passed to `mast.evaluate` as "
        f"modules at {setting['size']} pixels (`benchmarks/known_accuracy.py`).\n\n"
        f"For a run of `mast_c5_distance_small` the linear probe reaches {against['ours']:.2f} %, "
        "scikit-learn's `LogisticRegression` on the same features at the same penalty "
        f"{against['scikit-learn']:.2f} % (`python -m experiments protocols`)."
    )
