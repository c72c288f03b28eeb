"""The README's path from photos to predictions, as `benchmarks/path.py` measured it."""

import json

from mast.analyses import Grid
from paper.seeds import cell
from written.result_files import ROOT, link_table


def path() -> str:
    """Minutes of each command, what came of them, and other classifiers."""
    result = json.loads((ROOT / "benchmarks" / "results" / "path.json").read_text())
    setting, predicted, ways = result["setting"], result["told"], result["ways"]
    minutes = {each["command"]: each["minutes"] for each in result["commands"]}
    (training,) = (spent for line, spent in minutes.items() if "pretrain" in line)
    spent = tuple((line, f"{minutes:.1f}") for line, minutes in minutes.items())
    compared = tuple(
        (way, str(len(draws)), cell([each["top1"] for each in draws]),
         f"{min(each['minutes'] for each in draws):.1f}")
        for way, draws in ways.items()
        if draws
    )  # fmt: skip
    commands = link_table("path", Grid(("command", "minutes"), spent), "minutes")
    columns = ("classifier", "draws of labels", "accuracy (%)", "minutes")
    classifiers = link_table("path-classifiers", Grid(columns, compared), "other classifiers")
    return (
        f"On Flowers-17 ({setting['photos']} photos, {setting['labels']} labels per class, "
        f"{setting['new_photos']} new photos; {setting['size']} pixels, {setting['epochs']} "
        f"epochs, {setting['cores']} cores, one seed), pretraining takes {training:.0f} minutes "
        f"(`mast plan` predicted {result['planned_minutes']:.0f}), the other commands one "
        f"({commands}). "
        f"Accuracy on the new photos is {predicted['top1']:.0f} % [{predicted['low']:.0f}, "
        f"{predicted['high']:.0f}], chance {100 / setting['classes']:.0f} % ({classifiers}); "
        f"33 of them have a near-copy in train or val, so the accuracy is too high."
    )
