"""Any value of the right or the wrong type, for any option of any command."""

import os
import random
import shlex
from functools import cache
from pathlib import Path
from typing import Any

from faults.case import Case
from faults.commands import COMMANDS, TINY
from faults.process import run
from faults.world import World
from mast.cli.verbs import named
from mast.cli.words import options_of
from mast.core.arguments import choices, is_list, members
from mast.core.fields import kinds
from mast.recipes import recipe

# Where options are tried: every command with something small to do.
BASES = {
    **{
        name: COMMANDS[name].words
        for name in (
            "compare",
            "adapt",
            "outliers",
            "neighbours",
            "duplicates",
            "embed",
            "fit",
            "predict",
            "export",
            "report",
        )
    },
    "pretrain": COMMANDS["pretrain"].words,
    "evaluate": ("evaluate", "run", "--data", "photos", "--protocols", "knn"),
    "analyze": ("analyze", "run", "--data", "photos/test", "--images", "8", "--analyses", "masks"),
    "plan": ("plan", "photos/train", "--recipes", "mast_c5_small"),
    "demo": ("demo", "--out", "demo", "--images", "0"),  # which alone takes a minute
    "shard": ("shard", "photos/test", "--out", "shards", "--size", "16"),
    "show operators": ("show", "operators"),
    "show recipes": ("show", "recipes"),
    "show config": ("show", "config", *TINY.split()),
    "show views": ("show", "views", "photos/test", "--images", "1", "--out", "v.png"),
    "show cache": ("show", "cache"),
}
# A network, or a compiler.
LEFT_OUT = {"download", "compile", "wandb", "weights"}
SMALL = {  # where any number is right and a large one takes as long as it says
    "epochs", "resamples", "score_every", "checkpoint_minutes", "data.workers",
    "workers",
}  # fmt: skip
ANYTHING = (
    "", " ", "-1", "0", "1", "2", "7", "x", "0.5", "-0.5", "1.0", "nan", "inf", "-inf", "1e30",
    "1e-30", "1e400", "0x10", "1_000", "99999999999999999999", "-99999999999999999999", "[]", "{}",
    "[1, 2]", '{"a": 1}', '{"a": ', '["a", 1]', "[" * 3000, "null", "true", "no", "~",
    "~nouser/x", "é漢字", "\udcff", "a" * 300, "a/" * 3000, "../..", ".", "%s%n{}",
    "$(touch canary)", "; touch canary", "'", '"', "a\nb", "-", "--", "=", "@", "a@b:c",
    "hf:", "shards:", "shards:nowhere", "shards:x://y", "shards:{", "coco:", "voc:",
    "timm:", "torchvision:", "factors@nowhere", "factors:0", "factors@train:-1", "toys@train:1e9",
)  # fmt: skip
FEW = ("", "-1", "0", "1", "2", "x", "nan", "-0.5", "1.5", "[]", "null", "true")
PLACES = (
    "photos", "photos/train/dusk/0.png", "run", "run/config.yaml", "begun", "cache", "empty",
    "pipe", "device", "loop", "nowhere", "noise", "bomb.yaml", "deep.yaml", "list.yaml",
    "coco:photos", "coco:noise@photos", "coco:deep.yaml@photos", "voc:photos", "photos@train",
    "locked", "evil.pth",
)  # fmt: skip


def attack(world: World, draw: random.Random) -> Case:
    """Run a command with one to three of its options drawn."""
    folder = world.fresh()
    _make_places(folder)
    name, option = draw.choice([(name, option) for name in BASES for option in options(name)])
    others = sorted(options(name))
    given: list[str] = []
    for drawn in (option, *draw.sample(others, min(len(others), draw.choice((0, 0, 1, 2))))):
        given += value(drawn, options(name)[drawn], draw)
    if draw.random() < 0.05:
        given += draw.sample(ANYTHING, 2)
    words = [*BASES[name], *given]
    outcome = run(words, folder)
    verdict = outcome.fault or {0: "result", 2: "refused"}.get(outcome.code or 0, "wrong")
    return Case.of("options", words, shlex.join(given), verdict, outcome)


@cache
def options(name: str) -> dict[str, Any]:
    """The options of a command, and fields as key=value, with the types of their values."""
    verb = named(name)
    found = {
        f"--{option}": hint for option, (hint, *_) in options_of(verb).items()
        if option not in (*verb.words, "changes")
    }  # fmt: skip
    fields = kinds(recipe("mast5_small")) if verb.configured else {}
    return {
        option: hint for option, hint in (found | fields).items()
        if option.strip("-").rpartition(".")[2] not in LEFT_OUT
    }  # fmt: skip


def value(option: str, hint: Any, draw: random.Random) -> list[str]:
    """An option or a field as words, with something for a value of its type."""
    if not option.startswith("--"):
        return [f"{option}={_values(option, hint, draw)[0]}"]
    if bool in members(hint):
        return [draw.choice((option, f"--no_{option[2:]}"))]
    return [option, *_values(option, hint, draw)]


def _values(option: str, hint: Any, draw: random.Random) -> list[str]:
    if option.strip("-") in SMALL:
        return [draw.choice(FEW)]
    literals = [*map(str, choices(hint))]
    pools = [ANYTHING, *([literals] * 3 if literals else [])]
    if {str, Path} & {*members(hint)} or is_list(hint):
        pools += [PLACES, PLACES]
    count = draw.choice((1, 1, 2, 3)) if is_list(hint) else 1
    return [draw.choice(draw.choice(pools)) for _ in range(count)]


def _make_places(folder: Path) -> None:
    """What a name may stand for that is no folder of images."""
    (folder / "empty").mkdir()
    (folder / "locked").mkdir(mode=0)
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "noise").write_bytes(random.Random(0).randbytes(3000))
    (folder / "bomb.yaml").write_text(
        "a: &a [x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{b}: &{b} [{', '.join(['*' + a] * 8)}]\n"
            for a, b in zip("abcdefgh", "bcdefghi", strict=True)
        )
    )
    (folder / "deep.yaml").write_text("[" * 5000)
    (folder / "list.yaml").write_text("- 1\n- 2\n")
    try:  # a null device of our own
        os.mknod(folder / "device", 0o666 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        (folder / "device").symlink_to("nowhere")
