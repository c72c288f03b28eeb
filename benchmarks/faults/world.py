"""What the commands work on: photos, two finished runs, one that was killed, and caches."""

import os
import shlex
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from faults.commands import COMMANDS
from faults.process import Outcome, run, start

COUNTS = {"train": 16, "test": 8}  # images of each of two classes


class World:
    """A folder that each case gets a fresh copy of, always at the same place.

    Args:
        folder: Its own; nothing outside it is written.

    Attributes:
        place: Where the copy lies.
        answers: What each command answers where nothing is wrong.
        seconds: How long that takes.
    """

    def __init__(self, folder: Path) -> None:
        self.place = folder / "case"
        self._whole = folder / "whole"
        self.answers: dict[str, dict[str, Any]] = {}
        self.seconds: dict[str, float] = {}
        shutil.rmtree(folder, ignore_errors=True)
        self.place.mkdir(parents=True)
        self._make()

    def fresh(self) -> Path:
        """A fresh copy."""
        for path in (self.place, *self.place.rglob("*")):  # what a case made read-only
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(self.place)
        shutil.copytree(self._whole, self.place, symlinks=True)
        return self.place

    def ends(self, name: str, last: Outcome) -> str:
        """The verdict on a command that was stopped, or had no room, and was run again."""
        if last.fault or last.code != 0:
            return last.fault or "wrong"
        return "equal" if self.is_right(name, last) else "wrong"

    def is_right(self, name: str, outcome: Outcome) -> bool:
        """Whether a command answered in the copy as where nothing is wrong."""
        return COMMANDS[name].answer(self.place, outcome.printed) == self.answers[name]

    def _make(self) -> None:
        here = self.place
        _write_photos(here / "photos")
        train = COMMANDS["pretrain"].words
        for out, seed in (("run", "0"), ("other", "1")):
            _must([*train[:-1], out, "--seed", seed], here)
            for name in ("evaluate", "probe"):
                _must(["evaluate", out, *COMMANDS[name].words[2:]], here)
        self._begin_a_run()
        for name in ("analyze", "study", "report", "fit"):
            _must(COMMANDS[name].words, here)
        shutil.copytree(here, self._whole, symlinks=True)
        for name, command in COMMANDS.items():
            folder = self.fresh()
            command.forget(folder)
            outcome = _must(command.words, folder)
            self.answers[name] = command.answer(folder, outcome.printed)
            self.seconds[name] = outcome.seconds

    def _begin_a_run(self) -> None:
        """A run that was killed after a few steps, with two checkpoints."""
        words = [*COMMANDS["continue"].words, "--checkpoint_minutes", "0"]
        running = start(words, self.place)
        log = self.place / "begun" / "metrics.jsonl"
        while not log.is_file() or log.read_text().count("\n") < 5:
            if running.wait(0.0) is not None:
                raise RuntimeError("the run that was to be killed ended before")
            time.sleep(0.01)
        os.kill(running.process, signal.SIGKILL)
        running.end()
        for name in ("metrics.jsonl", "checkpoints/last.pt"):
            assert (self.place / "begun" / name).is_file()


def _write_photos(folder: Path) -> None:
    """PNGs of noise around a colour of their class."""
    generator = np.random.default_rng(0)
    for part, count in COUNTS.items():
        for name, colour in (("dusk", (90, 60, 120)), ("moss", (70, 120, 60))):
            (folder / part / name).mkdir(parents=True)
            for index in range(count):
                pixels = generator.normal(colour, 40, (24, 24, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{index}.png")


def _must(words: Sequence[str], folder: Path) -> Outcome:
    outcome = run(words, folder)
    if outcome.code != 0:
        raise RuntimeError(f"mast {shlex.join(words)} ended with {outcome.code}: {outcome.said}")
    return outcome
