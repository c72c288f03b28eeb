"""Files, classes, folders and runs with names that a terminal, a page or a table could execute."""

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from faults.case import Case
from faults.commands import COMMANDS
from faults.lies import Place, put, rewrite
from faults.process import run
from faults.strangers import acts, printed
from faults.world import World
from mast.core.tensors import DIGEST, digest

LONGEST = 255  # bytes of a name
# A surrogate is a byte that is not UTF-8.
HOSTILE = (
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "a\nerror: forged", "a\rb", "a\tb", "\x7f",
    "\x9b31m", "[red]rich[/red]", "[/]", "[link=x]rich", "[red]rich[", "[x](javascript:canary())",
    "![x](canary.png)", "<img src=x onerror=canary()>", "</title><script>canary()</script>",
    '"><svg onload=canary()>', "=1+canary()", "+1+1", "-1+1", "@SUM(1)", "\uff1d1+1",
    "\uff201", "\t=1", '"quoted"', "'", "`touch canary`", "$(touch canary)", "; touch canary",
    "-rf", "--out", "-", "\udcff\udcfe", "\u202egnp.exe", "\u2066x", "a|b", "a\\b", "%s%n",
    "{0.__class__}", "a,b", " ", "\u00e9" * 127, "x" * 255, "CON", "~", "*", "x@y:z", "{{7*7}}",
)  # fmt: skip
# What is renamed, and the commands that meet it.
RENAMED: dict[str, tuple[str, tuple[str, ...]]] = {
    "an image": ("photos/test/dusk/0.png", ("embed", "outliers", "neighbours", "predict", "views")),
    "an image to learn from": ("photos/train/moss/3.png", ("duplicates", "pretrain", "fit")),
    "a class": ("photos/*/dusk", ("evaluate", "fit", "embed", "outliers", "predict")),
    "the set": ("photos", ("embed", "evaluate", "fit", "duplicates", "outliers")),
    "the run": ("run", ("report", "compare", "embed", "export", "evaluate", "neighbours", "study")),
    "the classifier": ("fitted.safetensors", ("predict",)),
}
# What is written into files, where in them, and the commands that show it.
WRITTEN: dict[str, tuple[str, Place, tuple[str, ...]]] = {
    "a class of a classifier": ("fitted.safetensors", ("classifier", "classes", 0), ("predict",)),
    "the source of a classifier": (
        "fitted.safetensors", ("classifier", "about", "encoder", "source"), ("predict",)
    ),
    "the set of a result": ("run/evaluations/knn*.json", ("set_name",), ("compare", "report")),
    "the target of a result": ("run/evaluations/knn*.json", ("targets",), ("compare", "report")),
    "why an analysis is missing": ("run/analysis/missing.json", ("rank",), ("report",)),
    "the processor": ("run/provenance.json", ("processor",), ("report", "export")),
    "the data of a run": ("run/provenance.json", ("data", "spec"), ("report", "export")),
    "a warning": ("run/metrics.jsonl", ("warning",), ("report",)),
    "a category": ("coco/annotations/*.json", ("categories", 0, "name"), ("objects",)),
    "a file of annotations": ("coco/annotations/*.json", ("images", 0, "file_name"), ("objects",)),
    "a class of shards": ("shards/index.json", ("classes", 0), ("shards",)),
}  # fmt: skip


def attack(world: World, draw: random.Random) -> Case:
    """Give something a name, and run a command that shows it: it shows the name, or refuses."""
    folder = world.fresh()
    text, what = draw.choice(HOSTILE), draw.choice([*RENAMED, *WRITTEN])
    if what in RENAMED:
        pattern, readers = RENAMED[what]
        name = draw.choice(readers)
        words = rename(folder, pattern, text.replace("/", "\u2215"), COMMANDS[name].words)
    else:
        pattern, place, readers = WRITTEN[what]
        name = draw.choice(readers)
        words = [*COMMANDS[name].words]
        for file in folder.glob(pattern):
            WRITE[file.suffix](file, place, text)
    COMMANDS[name].forget(folder)
    outcome = run(words, folder)
    wrong = [*printed(outcome)]
    if acting := acts(folder):
        wrong.append(f"it acts in {acting}")
    verdict = {0: "result", 2: "refused"}.get(outcome.code or 0, "wrong")
    said = ", ".join([f"{what} is {text!r}", *wrong])
    return Case.of("names", words, said, outcome.fault or ("wrong" if wrong else verdict), outcome)


def rename(folder: Path, pattern: str, text: str, words: Sequence[str]) -> list[str]:
    """Rename what a pattern finds; the words of a command with its new name."""
    while len(os.fsencode(text)) + len(Path(pattern).suffix) > LONGEST:
        text = text[:-1]
    new = str(Path(pattern).with_name(text + Path(pattern).suffix))
    for path in sorted(folder.glob(pattern)):
        path.rename(path.with_name(text + path.suffix))
    return [
        new + word[len(pattern) :] if word == pattern or word.startswith(f"{pattern}/") else word
        for word in words
    ]


def _into_json(file: Path, place: Place, text: str) -> None:
    document = json.loads(file.read_text())
    if place == ("targets",):  # whose names are keys
        document["targets"] = dict.fromkeys([text], *document["targets"].values())
    else:
        put(document, place, text)
    if document.pop(DIGEST, None) is not None:
        document[DIGEST] = digest({}, document)
    file.write_text(json.dumps(document))


def _into_header(file: Path, place: Place, text: str) -> None:
    rewrite(file, lambda tensors, ours: put(ours, place, text))


def _into_log(file: Path, place: Place, text: str) -> None:
    with file.open("a") as log:
        log.write(json.dumps({"step": 12, str(place[0]): text}) + "\n")


WRITE: dict[str, Callable[[Path, Place, str], None]] = {
    ".json": _into_json,
    ".jsonl": _into_log,
    ".safetensors": _into_header,
}
