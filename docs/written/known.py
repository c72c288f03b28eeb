"""Published accuracies of an encoder compared with ours."""

import json

from mast.analyses import Grid
from written.result_files import RESULTS, ROOT, link_table

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
    table = link_table("known", Grid(("network", "published", *networks[0]["measured"]), rows))
    against = json.loads((RESULTS / "protocols.json").read_text())["agreement with scikit-learn"]
    repository = setting["repository"]
    return (
        f"Two networks of [{repository}](https://github.com/{repository}) reach their published "
        f"CIFAR-10 accuracy to 0.01 points; kNN and linear probe on their features are within "
        f"0.3 ({table}). At the same penalty, `linear` and scikit-learn's `LogisticRegression` "
        f"reach {against['ours']:.2f} and {against['scikit-learn']:.2f} %."
    )
