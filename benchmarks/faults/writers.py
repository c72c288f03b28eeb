"""Two writers of one target at once, and a target where something of somebody else is."""

import random
from pathlib import Path

from faults.case import Case
from faults.commands import COMMANDS
from faults.process import Outcome, run, start
from faults.world import World

FILES = {"embed": "space.npz", "outliers": "table.csv", "fit": "fitted.safetensors",
         "duplicates": "copies.csv", "neighbours": "near.html", "predict": "told.csv",
         "views": "views.png", "report": "run/report.html"}  # fmt: skip
FOLDERS = {"pretrain": "new", "export": "exported"}
TWICE = (*FILES, *FOLDERS, "evaluate", "probe", "analyze", "continue", "shards")
READERS = {"fit": "predict", "evaluate": "compare", "analyze": "report", "probe": "report"}
THEIRS = "of somebody else\n"


def attack(world: World, draw: random.Random) -> Case:
    """Run a command that does not have its target for itself."""
    how = draw.choice((_twice, _twice, _beside, _beside, _linked, _closed, _among))
    return how(world, world.fresh(), draw)


def _twice(world: World, folder: Path, draw: random.Random) -> Case:
    """Two at once, and perhaps one that reads: each answers right, or refuses."""
    name = draw.choice(TWICE)
    command, reader = COMMANDS[name], READERS.get(name)
    if reader is None:  # which may find what was there before
        command.forget(folder)
    first = start(command.words, folder)
    first.wait(draw.uniform(0.0, world.seconds[name]))
    second = start(command.words, folder)
    outcomes = [run(COMMANDS[reader].words, folder)] if reader else []
    outcomes += [first.end(), second.end()]
    faults = [outcome.fault for outcome in outcomes if outcome.fault]
    answered = [outcome for outcome in outcomes[-2:] if outcome.code == 0]
    found = command.answer(folder, answered[0].printed if answered else "")
    right = all(found.get(file) == content for file, content in world.answers[name].items())
    verdict = faults[0] if faults else "result" if right else "wrong"
    said = "two at once" + (f", and {reader}" if reader else "")
    return Case.of("writers", command.words, said, verdict, *outcomes)


def _beside(world: World, folder: Path, draw: random.Random) -> Case:
    """A stranger's file, or link, has the name under which a target could be written first."""
    name = draw.choice(sorted(FILES))
    theirs, elsewhere = folder / f"{FILES[name]}.partial", folder / "elsewhere"
    elsewhere.write_text(THEIRS)
    if is_link := draw.random() < 0.5:
        theirs.symlink_to(elsewhere)
    else:
        theirs.write_text(THEIRS)
    COMMANDS[name].forget(folder)
    outcome = run(COMMANDS[name].words, folder)
    said = "a stranger's .partial" + (", a link" if is_link else "")
    return _case(world, name, said, _is_theirs(theirs) and _is_theirs(elsewhere), outcome)


def _linked(world: World, folder: Path, draw: random.Random) -> Case:
    """The target is a link: what it points to is written."""
    name = draw.choice(sorted(FILES))
    link, there = folder / FILES[name], folder / "there"
    COMMANDS[name].forget(folder)
    there.write_text(THEIRS)
    link.unlink(missing_ok=True)
    link.symlink_to(there)
    outcome = run(COMMANDS[name].words, folder)
    kept = link.is_symlink() and _is_theirs(there) == (outcome.code != 0)
    return _case(world, name, "a link", kept, outcome)


def _closed(world: World, folder: Path, draw: random.Random) -> Case:
    """The target can be read by its owner alone, and stays so."""
    name = draw.choice(sorted(FILES))
    target = folder / FILES[name]
    COMMANDS[name].forget(folder)
    target.write_text(THEIRS)
    target.chmod(0o600)
    outcome = run(COMMANDS[name].words, folder)
    return _case(world, name, "mode 0600", target.stat().st_mode & 0o777 == 0o600, outcome)


def _among(world: World, folder: Path, draw: random.Random) -> Case:
    """A stranger's file lies in the folder: it is left alone."""
    name = draw.choice(sorted(FOLDERS))
    others = ("notes.txt", "config.yaml", "encoder.safetensors", "README.md", "checkpoints/last.pt")
    theirs = folder / FOLDERS[name] / draw.choice(others)
    COMMANDS[name].forget(folder)
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text(THEIRS)
    outcome = run(COMMANDS[name].words, folder)
    return _case(world, name, f"{theirs.name} of a stranger", _is_theirs(theirs), outcome)


def _is_theirs(file: Path) -> bool:
    return file.is_file() and file.read_bytes() == THEIRS.encode()


def _case(world: World, name: str, said: str, unharmed: bool, outcome: Outcome) -> Case:
    """A verdict: the right answer, or one line, and nothing of others harmed."""
    right = outcome.code == 2 or (outcome.code == 0 and world.is_right(name, outcome))
    verdict = "wrong" if not (unharmed and right) else "refused" if outcome.code else "result"
    return Case.of("writers", COMMANDS[name].words, said, outcome.fault or verdict, outcome)
