"""The README's path from photos to predictions, as `benchmarks/path.py` measured it."""

import json

from mast.analyses import Grid
from paper.seeds import cell
from paper.tables.printed import as_markdown
from written.result_files import ROOT


def path() -> str:
    """Minutes of each command, what came of them, and what else could have been done."""
    result = json.loads((ROOT / "benchmarks" / "results" / "path.json").read_text())
    setting, predicted, ways = result["setting"], result["told"], result["ways"]
    minutes = {each["command"]: each["minutes"] for each in result["commands"]}
    (training,) = (spent for line, spent in minutes.items() if "pretrain" in line)
    error = 100 * (result["planned_minutes"] / training - 1)
    spent = tuple((f"`{line}`", f"{minutes:.1f}") for line, minutes in minutes.items())
    tuned = setting["tuned"]
    scratch = [
        f"{draw['validation']['chosen']['encoder_lr']:g} ({draw['top1']:.0f} %)"
        for draw in ways["from scratch"]
    ]
    trained = (
        "Fine-tuned or from scratch, the whole network trains on the labeled photos for "
        f"{tuned['changes']['epochs']} epochs, at learning rate "
        f"{' or '.join(f'{rate:g}' for rate in tuned['encoder_lrs'])}, chosen on a tenth of the "
        f"labels; from scratch, by draw (accuracy): {', '.join(scratch)}. "
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
            f"{setting['labels']} of them per class with their names, and `new_photos` are the "
            f"{setting['new_photos']} test photos:",
            as_markdown(Grid(("command", "minutes"), spent)),
            f"`mast plan photos` predicted {result['planned_minutes']:.0f} minutes of "
            f"pretraining ({error:+.0f} %). {predicted['top1']:.0f} % "
            f"[{predicted['low']:.0f}, {predicted['high']:.0f}] of the new photos are classified "
            f"correctly (chance {100 / setting['classes']:.0f} %). Accuracy over several draws of "
            f"the {setting['labels']} labels, and minutes of the fastest `fit`:",
            as_markdown(Grid(("classifier", "draws", "accuracy (%)", "minutes"), compared)),
            f"{trained if ways['from scratch'] else ''}"
            f"{setting['size']} pixels, {setting['epochs']} epochs, {setting['cores']} cores of "
            f"{result['provenance']['processor']}; one seed of the pretraining. 33 of the "
            f"{setting['new_photos']} new photos have a near-copy in train or val, so all numbers "
            "are somewhat high (`benchmarks/path.py`).",
        ]
    )
