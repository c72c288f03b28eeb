"""The README's path from photos to predictions, as `benchmarks/path.py` measured it."""

import json

from mast.analyses import Grid
from paper.seeds import cell
from written.result_files import ROOT, whole


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
    commands = whole("path", Grid(("command", "minutes"), spent))
    columns = ("classifier", "draws of labels", "accuracy (%)", "minutes")
    classifiers = whole("path-classifiers", Grid(columns, compared))
    return (
        f"On Flowers-17 ({setting['photos']} photos, {setting['labels']} labels per class, "
        f"{setting['new_photos']} new photos; {setting['size']} pixels, {setting['epochs']} "
        f"epochs, {setting['cores']} cores, one seed), pretraining takes {training:.0f} minutes "
        f"(`mast plan` predicted {result['planned_minutes']:.0f}), all else a minute: {commands}. "
        f"{predicted['top1']:.0f} % [{predicted['low']:.0f}, {predicted['high']:.0f}] of the new "
        f"photos get the right class (chance {100 / setting['classes']:.0f} %); other classifiers: "
        f"{classifiers}. 33 of the {setting['new_photos']} have a near-copy in train or val, so "
        "numbers are somewhat high."
    )
