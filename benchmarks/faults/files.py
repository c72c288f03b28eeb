"""Damage anywhere in a file that a command reads: its right answer, or one line."""

import os
import random
from pathlib import Path
from typing import Any

from faults.case import Case
from faults.commands import COMMANDS
from faults.process import Outcome, run
from faults.world import World

READERS = sorted(name for name, command in COMMANDS.items() if command.reads)


def attack(world: World, draw: random.Random) -> Case:
    """Damage one file of a kind that a command reads, and run it.

    It answers as without the damage, or it names the file and answers the rest, or nothing.
    """
    folder = world.fresh()
    name = draw.choice(READERS)
    command = COMMANDS[name]
    files = sorted(path for path in folder.glob(draw.choice(command.reads)) if path.is_file())
    if not files:
        return attack(world, draw)
    file = draw.choice(files)
    # Without one of its images a set is another, and what was not measured is not shown.
    gone = ("removed", "a folder") if file.suffix == ".png" else ("removed",)
    may_go = file.suffix != ".png" and "evaluations" not in file.parts
    how = draw.choice([how for how in DAMAGES if how not in gone or may_go])
    DAMAGES[how](file, draw)
    command.forget(folder)
    outcome = run(command.words, folder)
    damage = f"{file.relative_to(folder)}: {how}"
    return Case.of("files", command.words, damage, verdict(world, name, file, outcome), outcome)


def verdict(
    world: World, name: str, file: Path, outcome: Outcome, words: tuple[str, ...] = ()
) -> str:
    """On a command that read a file in which something is wrong.

    It answers right, or it names the file, its run or set, or says one of some other words.
    """
    sets = tuple(word for word in COMMANDS[name].words if word.startswith(("coco:", "shards:")))
    named = _says((file.name, f"{file.parent.name} ", *sets, *words), outcome.said)
    if outcome.fault:
        return outcome.fault
    if outcome.code != 0:
        return "refused" if named else "wrong"
    answer, expected = COMMANDS[name].answer(world.place, outcome.printed), world.answers[name]
    if name == "cache":
        return "result" if answer != expected else "wrong"
    if file.name == "metrics.jsonl":  # a log that ends early is none that is damaged
        answer, expected = (_without_log(each) for each in (answer, expected))
    if answer == expected:
        return "result"
    if name in ("report", "compare") and f"{file.name} is of another encoder" in outcome.said:
        return "refused"  # page and tables are written without a result that is named
    if named and "are broken and are skipped" in outcome.said:
        return "refused"  # the others are read, and the broken image is named
    if name == "report" and "evaluations" not in file.parts:
        return "refused"  # the page is written without what nothing depends on
    return "refused" if named and _is_part(answer, expected) else "wrong"


def _says(words: tuple[str, ...], said: str) -> bool:
    """Whether one of some words is in something else than progress."""
    lines = (line for line in said.splitlines() if not line.startswith("done: "))
    return any(word in line for line in lines for word in words)


def _is_part(answer: Any, expected: Any) -> bool:
    """Whether all that was answered is right."""
    if isinstance(answer, dict) and isinstance(expected, dict):
        return all(key in expected and _is_part(answer[key], expected[key]) for key in answer)
    return bool(answer == expected)


def _without_log(answer: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in answer.items()
        if Path(name).stem not in ("metrics", "report")
    }


def _flip(file: Path, draw: random.Random) -> None:
    content = bytearray(file.read_bytes())
    if content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        file.write_bytes(content)


def _overwrite(file: Path, draw: random.Random, filler: bytes | None = None) -> None:
    content = bytearray(file.read_bytes())
    length = draw.randint(1, max(1, len(content) // 2))
    start = draw.randrange(max(1, len(content) - length + 1))
    content[start : start + length] = (filler or draw.randbytes(1)) * length
    file.write_bytes(content)


def _noise(file: Path, draw: random.Random) -> None:
    content = file.read_bytes()
    start = draw.randrange(max(1, len(content)))
    noise = draw.randbytes(draw.randint(1, 512))
    file.write_bytes(content[:start] + noise + content[start + len(noise) :])


def _cut(file: Path, draw: random.Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: draw.randrange(max(1, len(content)))])


def _insert(file: Path, draw: random.Random) -> None:
    content = file.read_bytes()
    start = draw.randrange(len(content) + 1)
    file.write_bytes(content[:start] + draw.randbytes(draw.randint(1, 16)) + content[start:])


def _become_a_folder(file: Path, draw: random.Random) -> None:
    file.unlink()
    file.mkdir()


def _become_a_pipe(file: Path, draw: random.Random) -> None:
    file.unlink()
    os.mkfifo(file)


def _loop(file: Path, draw: random.Random) -> None:
    file.unlink()
    file.symlink_to(file.name)


DAMAGES = {
    "a bit": _flip,
    "zeros": lambda file, draw: _overwrite(file, draw, b"\0"),
    "ones": lambda file, draw: _overwrite(file, draw, b"\xff"),
    "one byte, repeated": _overwrite,
    "noise": _noise,
    "cut short": _cut,
    "bytes inserted": _insert,
    "emptied": lambda file, draw: file.write_bytes(b""),
    "removed": lambda file, draw: file.unlink(),
    "a folder": _become_a_folder,
    "a pipe": _become_a_pipe,
    "a link to itself": _loop,
    "another kind": lambda file, draw: file.write_text(
        draw.choice(("[1, 2]", "{}", "null", '"x"', "a: {b: 1}", "[" * 9999))
    ),
}
