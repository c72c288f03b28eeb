"""A command that is stopped at a random moment, once or twice, and run again."""

import random
import signal

from faults.case import Case
from faults.commands import COMMANDS
from faults.process import run, start
from faults.world import World

STOPPED = ("pretrain", "pretrain", "continue", "continue", "evaluate", "probe", "analyze", "embed",
           "new study", "views")  # fmt: skip
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def attack(world: World, draw: random.Random) -> Case:
    """Stop a command in the middle, run it again, and compare what it answers."""
    folder = world.fresh()
    name = draw.choice(STOPPED)
    command = COMMANDS[name]
    command.forget(folder)
    if name != "continue" and draw.random() < 0.5:  # nothing is kept of the images yet
        for path in (folder / "cache").rglob("*"):
            if path.is_file():
                path.unlink()
    words = [*command.words]
    if name in ("pretrain", "continue"):
        words += ["--checkpoint_minutes", draw.choice(("0", "60"))]
    outcomes, done = [], []
    for _ in range(draw.choice((1, 1, 2))):
        number = draw.choice(SIGNALS)
        moment = draw.uniform(0.0, world.seconds[name])
        running = start(words, folder)
        if running.wait(moment) is None:
            running.ask(number)
        outcome = running.end()
        outcomes.append(outcome)
        done.append(f"{signal.Signals(number).name} after {moment:.2f} s: {outcome.code}")
        if outcome.fault and outcome.code != -number:
            return Case.of("kill", words, ", ".join(done), outcome.fault, *outcomes)
    last = run(words, folder)
    return Case.of("kill", words, ", ".join(done), world.ends(name, last), *outcomes, last)
