"""A disk that is full or read-only: one line, and the same command ends right when it is not."""

import ctypes
import random
import resource
from collections.abc import Callable

from faults.case import Case
from faults.commands import COMMANDS
from faults.process import run
from faults.world import World

WRITERS = ("pretrain", "continue", "evaluate", "probe", "analyze", "embed", "export", "report",
           "outliers", "neighbours", "duplicates", "fit", "predict", "views",
           "new study")  # fmt: skip
LARGEST = 3 << 20  # bytes; checkpoints and encoders are a little smaller
# Of Linux: linux/capability.h
CAPABILITY_VERSION = 0x20080522


def attack(world: World, draw: random.Random) -> Case:
    """Run a command where it cannot write all, then where it can."""
    folder = world.fresh()
    name = draw.choice(WRITERS)
    command = COMMANDS[name]
    command.forget(folder)
    prepare: Callable[[], object]
    if draw.random() < 0.7:
        limit = int(LARGEST ** draw.random())
        attack, prepare = f"no file above {limit} bytes", lambda: _limit(limit)
    else:
        place = draw.choice(
            ("cache", "cache/mast", "run", "run/evaluations", "begun", "begun/checkpoints", ".")
        )
        attack, prepare = f"{place} cannot be written", _drop_rights
        (folder / place).chmod(0o555)
    first = run(command.words, folder, prepare)
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    if first.fault:
        return Case.of("disk", command.words, attack, first.fault, first)
    if first.code == 0:  # there was room enough, or what could not be kept was not needed
        verdict = "result" if world.is_right(name, first) else "wrong"
        return Case.of("disk", command.words, attack, verdict, first)
    again = run(command.words, folder)
    return Case.of("disk", command.words, attack, world.ends(name, again), first, again)


def _limit(size: int) -> None:
    """No file grows above a size: writing more fails, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _drop_rights() -> None:
    """Root, whom nothing is forbidden, becomes a user whom it is."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice 32 bits each
    if libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "capset")
