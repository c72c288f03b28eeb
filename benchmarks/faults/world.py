"""What the commands work on: photos, also as shards and annotated, two finished runs, one that was
killed, one that was adapted, and caches."""

import json
import os
import pickle
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from faults.commands import COMMANDS
from faults.process import Outcome, run, start

COUNTS = {"train": 16, "test": 8}  # images of each of two classes
CANARY = "canary"  # a file or folder that is there once a command ran what it was given


class Runs:
    """What makes a folder where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.file),)


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
        self._calls: dict[str, str] = {}
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

    @property
    def ran_code(self) -> bool:
        """Whether something in the copy was run that no command may run."""
        return next(self.place.rglob(CANARY), None) is not None

    def once(self, name: str, answer: Callable[[Path], str]) -> str:
        """What a call answers in a fresh copy where nothing is wrong."""
        if name not in self._calls:
            self._calls[name] = answer(self.fresh())
        return self._calls[name]

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
            words = " ".join([*train[:-1], out]).replace("--seed 0", f"--seed {seed}")
            _must(words.split(), here)
            for name in ("evaluate", "probe"):
                _must(["evaluate", out, *COMMANDS[name].words[2:]], here)
        self._begin_a_run()
        _must(["shard", "photos/test", "--out", "shards", "--size", "20", "--images", "6"], here)
        _annotate(here / "photos", here / "coco")
        ghostscript = here / "bin" / "gs"
        ghostscript.parent.mkdir()
        ghostscript.write_text(f"#!/bin/sh\n: > {shlex.quote(str(here / CANARY))}\n")
        ghostscript.chmod(0o755)
        (here / "evil.pth").write_bytes(pickle.dumps(Runs(here / CANARY)))
        for name in ("analyze", "study", "report", "fit", "adapt"):
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
        words = [*COMMANDS["continue"].words, "checkpoint_minutes=0"]
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
    """PNGs of noise around a color of their class."""
    generator = np.random.default_rng(0)
    for part, count in COUNTS.items():
        for name, color in (("dusk", (90, 60, 120)), ("moss", (70, 120, 60))):
            (folder / part / name).mkdir(parents=True)
            for index in range(count):
                pixels = generator.normal(color, 40, (24, 24, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{index}.png")


def _annotate(photos: Path, folder: Path) -> None:
    """The same photos as COCO annotates them, an object in each."""
    (folder / "annotations").mkdir(parents=True)
    for part in COUNTS:
        shutil.copytree(photos / part, folder / part)
        names = sorted(str(path.relative_to(photos / part)) for path in photos.glob(f"{part}/*/*"))
        document = {
            "images": [
                {"id": number, "file_name": name, "width": 24, "height": 24}
                for number, name in enumerate(names)
            ],
            "categories": [{"id": 1, "name": "dusk"}, {"id": 2, "name": "moss"}],
            "annotations": [
                {"id": number, "image_id": number, "category_id": 1 + name.startswith("moss"),
                 "bbox": [2, 3, 10, 12], "area": 120, "iscrowd": 0,
                 "segmentation": [[2, 3, 12, 3, 12, 15, 2, 15]]}
                for number, name in enumerate(names)
            ],
        }  # fmt: skip
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(document))


def _must(words: Sequence[str], folder: Path) -> Outcome:
    outcome = run(words, folder)
    if outcome.code != 0:
        raise RuntimeError(f"mast {shlex.join(words)} ended with {outcome.code}: {outcome.said}")
    return outcome
