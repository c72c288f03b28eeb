"""The study `detectors`."""

import json

from experiments.detectors import AVERAGED, Detectors
from paper.tables.printed import as_markdown
from written.result_files import RESULTS


def detection() -> str:
    """What the detectors learn."""
    result = json.loads((RESULTS / f"{Detectors.results}.json").read_text())
    fitted, networks = result["overfit"], list(result["losses"]["networks"].values())
    names = {"AP": "objects/ap", "AP50": "objects/ap50", "AP75": "objects/ap75"}
    precision = ", ".join(f"{name} {fitted['measures'][key]:.1f}" for name, key in names.items())
    truth = "; ".join(
        f"{split}: boxes {row['objects/ap']:.1f}, masks {row['masks/ap']:.1f}"
        for split, row in result["truth"]["sets"].items()
    )
    return (
        f"Faster R-CNN overfits {fitted['images']['train']} photos with {fitted['objects']} "
        f"objects in {fitted['settings']['iterations']} steps ({fitted['minutes']:.0f} minutes); "
        f"boxes: {precision}.\n\n"
        f"Mean of each loss over the first and the last {AVERAGED} steps on "
        f"{networks[0]['images']['train']} photos:\n\n"
        f"{as_markdown(Detectors().table(result))}\n\n"
        f"AP of the annotations, scored as detections: {truth}."
    )
