"""The README's path from photos to predictions, as `benchmarks/path.py` measured it."""

import json

from mast.analyses import Grid
from mast.studies.seeds import cell
from mast.studies.tables.printed import as_markdown
from written.result_files import ROOT


def path() -> str:
    """Minutes of each command, what came of them, and what else could have been done."""
    result = json.loads((ROOT / "benchmarks" / "results" / "path.json").read_text())
    setting, told, ways = result["setting"], result["told"], result["ways"]
    minutes = {each["command"]: each["minutes"] for each in result["commands"]}
    (training,) = (spent for line, spent in minutes.items() if "pretrain" in line)
    error = 100 * (result["planned_minutes"] / training - 1)
    spent = tuple((f"`{line}`", f"{minutes:.1f}") for line, minutes in minutes.items())
    tuned = setting["tuned"]
    trained = (
        "Fine-tuned or from scratch, the whole network is trained on the labelled photos for "
        f"{tuned['changes']['epochs']} epochs, at the rate of "
        f"{' and '.join(f'{rate:g}' for rate in tuned['encoder_lrs'])} that is right more often on "
        "a tenth of them. "
    )
    compared = tuple(
        (way, str(len(draws)), cell([each["top1"] for each in draws]),
         f"{min(each['minutes'] for each in draws):.1f}")
        for way, draws in ways.items()
        if draws
    )  # fmt: skip
    return "\n\n".join(
        [
            f"`photos` are the {setting['photos']} training photos of Flowers-17, `labelled` has "
            f"{setting['labels']} of them a class with their names, and `new_photos` are the "
            f"{setting['new_photos']} test photos:",
            as_markdown(Grid(("command", "minutes"), spent)),
            f"`mast plan --data photos` had said {result['planned_minutes']:.0f} minutes for the "
            f"pretraining ({error:+.0f} %). Of the new photos {told['top1']:.0f} % "
            f"[{told['low']:.0f}, {told['high']:.0f}] are told right; by chance it would be "
            f"{100 / setting['classes']:.0f} %. The same for several draws of the "
            f"{setting['labels']} labels, percent right, and minutes of the fastest `fit` (other "
            "programs ran beside most fits):",
            as_markdown(Grid(("classifier", "draws", "right", "minutes"), compared)),
            f"{trained if ways['from scratch'] else ''}"
            f"{setting['size']} pixels, {setting['epochs']} epochs, {setting['cores']} cores of "
            f"{result['provenance']['processor']}; one seed of the pretraining. 33 of the "
            f"{setting['new_photos']} new photos have a near-copy among the others of the set, so "
            "all numbers are somewhat too good (`benchmarks/path.py`).",
        ]
    )
