"""The image store is right after kills, damage and removal, and beside another process."""

import os
import random
import re
import shutil
import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from faults.case import Case
from faults.commands import COMMANDS
from faults.files import DAMAGES
from faults.process import Outcome, run, start
from faults.world import World
from mast.data import photos, store
from mast.encoders import frozen

SEARCHES = ("embed", "embed", "duplicates", "outliers", "neighbours")
INSIDE = {module.__file__ for module in (photos, store, frozen)}
LINES = 3000  # of these files, which a command executes that knows no image yet
SAME = 5e-5  # by which results differ with the batches
KINDS = {"a folder", "a pipe", "a link to itself"}  # of files, which are left to who made them
LOST = ("damaged", "made anew", "nothing is kept")  # what is said of a store
_NUMBER = re.compile(rb"(-?\d+\.\d+)")


def attack(world: World, draw: random.Random) -> Case:
    """Harm the store, and run a command twice: both are right, and the second finds no harm."""
    folder, name = world.fresh(), draw.choice(SEARCHES)
    words = COMMANDS[name].words
    COMMANDS[name].forget(folder)
    if draw.random() < 0.7:
        shutil.rmtree(folder / "cache" / "mast")
    how = draw.choice((_killed, _killed, _beside, _forgotten, _damaged))
    attack, harmed = how(folder, words, world.seconds[name], draw)
    last, again = (run(words, folder, partial(_often, 3)) for _ in range(2))
    outcomes = [*harmed, last, again]
    ended = (outcome for outcome in outcomes if outcome.code != -signal.SIGKILL)
    faults = [outcome.fault for outcome in ended if outcome.fault]
    found = COMMANDS[name].answer(folder, again.printed)
    right = last.code == again.code == 0 and _alike(found, world.answers[name])
    silent = [again] if how is _damaged else outcomes
    said = any(word in outcome.said for outcome in silent for word in LOST)
    verdict = faults[0] if faults else "equal" if right and not said else "wrong"
    return Case.of("stores", words, attack, verdict, *outcomes)


Harmed = tuple[str, list[Outcome]]


def _killed(folder: Path, words: tuple[str, ...], seconds: float, draw: random.Random) -> Harmed:
    """Killed once or several times: at a moment, or where a line of the store is executed."""
    outcomes, said = [], []
    for _ in range(draw.choice((1, 2, 3))):
        often = draw.randint(1, 6)
        line = int(LINES ** draw.uniform(0.3, 1)) if draw.random() < 0.7 else None
        running = start(words, folder, partial(_often, often, line))
        if line is None and running.wait(draw.uniform(0.2, 1.2 * seconds)) is None:
            running.ask(signal.SIGKILL)
        outcomes.append(running.end())
        where = "at a moment" if line is None else f"at line {line}"
        said.append(f"killed {where}, {often} images at once: {outcomes[-1].code}")
    return ", ".join(said), outcomes


def _beside(folder: Path, words: tuple[str, ...], seconds: float, draw: random.Random) -> Harmed:
    """Two at once, of which one is killed."""
    often, line = draw.randint(1, 6), int(LINES ** draw.uniform(0.3, 1))
    first = start(words, folder, partial(_often, often, line))
    first.wait(draw.uniform(0, 0.5 * seconds))
    second = start(words, folder, partial(_often, draw.randint(1, 6)))
    outcomes = [first.end(), second.end()]
    return f"two at once, one killed at line {line}: {outcomes[0].code}", outcomes


def _forgotten(folder: Path, words: tuple[str, ...], seconds: float, draw: random.Random) -> Harmed:
    """What is known is forgotten meanwhile."""
    what = draw.choice(("all", "run"))
    running = start(words, folder, partial(_often, draw.randint(1, 3)))
    running.wait(draw.uniform(0, seconds))
    outcomes = [run(("show", "cache", "--forget", what), folder) for _ in range(draw.randint(1, 2))]
    known = [each for each in outcomes if "no encoder 'run'" not in each.said]
    return f"{what} forgotten meanwhile", [*known, running.end()]


def _damaged(folder: Path, words: tuple[str, ...], _: float, draw: random.Random) -> Harmed:
    """A file of it is damaged, where it is written to or where it is as it was."""
    outcomes = [run(words, folder)]
    (file,) = (folder / "cache" / "mast").glob("*.sqlite")
    how = draw.choice(sorted(DAMAGES.keys() - KINDS))
    DAMAGES[how](file, draw)
    return f"{file.name}: {how}", outcomes


def _often(images: int, dies_at: int | None = None) -> None:
    """In a process of a command: it keeps what it found after so many images.

    Args:
        images: That many.
        dies_at: How many lines of what keeps them it executes before it is killed.
    """
    photos._SAVED = images
    left = dies_at or 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in INSIDE:
            return None
        left -= event == "line"
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return count

    if dies_at:
        sys.settrace(count)


def _alike(found: Any, expected: Any) -> bool:
    """Whether answers are the same but for the last digits of numbers."""
    if isinstance(expected, dict):
        same = isinstance(found, dict) and found.keys() == expected.keys()
        return same and all(_alike(found[key], expected[key]) for key in expected)
    if isinstance(expected, tuple):  # an array
        as_numbers = [np.frombuffer(each[1], "<f4") for each in (found, expected)
                      if found[0] == each[0] and len(each[0]) == 2]  # fmt: skip
        return found == expected or bool(as_numbers and np.allclose(*as_numbers, SAME, SAME))
    # Two images with the same number may change places.
    ours, theirs = (_NUMBER.split(b"\n".join(sorted(of.splitlines()))) for of in (found, expected))
    near = np.allclose([*map(float, ours[1::2])], [*map(float, theirs[1::2])], SAME, SAME)
    return ours[::2] == theirs[::2] and bool(near)
