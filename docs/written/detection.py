"""The study `detectors`."""

import json

from experiments.detectors import Detectors
from written.result_files import RESULTS, whole


def detection() -> str:
    """What the detectors learn."""
    result = json.loads((RESULTS / f"{Detectors.results}.json").read_text())
    fitted = result["overfit"]
    names = {"AP": "objects/ap", "AP50": "objects/ap50", "AP75": "objects/ap75"}
    precision = ", ".join(f"{name} {fitted['measures'][key]:.1f}" for name, key in names.items())
    return (
        f"Faster R-CNN overfits {fitted['images']['train']} photos with {fitted['objects']} "
        f"objects in {fitted['settings']['iterations']} steps ({fitted['minutes']:.0f} minutes; "
        f"boxes: {precision}). Losses: {whole('detection', Detectors().table(result))}."
    )
