"""The study `detectors`."""

import json

from experiments.detectors import Detectors
from written.result_files import RESULTS, link_table


def detection() -> str:
    """What the detectors learn."""
    result = json.loads((RESULTS / f"{Detectors.results}.json").read_text())
    fitted = result["overfit"]
    names = {"AP": "objects/ap", "AP50": "objects/ap50", "AP75": "objects/ap75"}
    precision = ", ".join(f"{name} {fitted['measures'][key]:.1f}" for name, key in names.items())
    return (
        f"As a check, Faster R-CNN overfits {fitted['images']['train']} photos with "
        f"{fitted['objects']} objects in {fitted['settings']['iterations']} steps ({precision}; "
        f"{link_table('detection', Detectors().table(result), 'losses')})."
    )
