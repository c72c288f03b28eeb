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
    is_cold = name != "continue" and draw.random() < 0.5  # nothing is kept of the images yet
    if is_cold:
        for path in (folder / "cache").rglob("*"):
            if path.is_file():
                path.unlink()
    words = [*command.words]
    if name in ("pretrain", "continue"):
        words += [f"checkpoint_minutes={draw.choice((0, 60))}"]
    outcomes, done, asked = [], [], False
    for _ in range(draw.choice((1, 1, 2))):
        number = draw.choice(SIGNALS)
        moment = draw.uniform(0.05, world.seconds[name] * (1.5 if is_cold else 1.0))
        running = start(words, folder)
        if running.wait(moment) is None:
            running.ask(number)
            asked = True
        outcome = running.end()
        outcomes.append(outcome)
        done.append(f"{signal.Signals(number).name} after {moment:.2f} s: {outcome.code}")
        expected = {0, -number} if number == signal.SIGKILL else {0, 128 + number}
        if outcome.code not in expected or (outcome.fault and outcome.code != -number):
            return Case.of("kill", words, ", ".join(done), outcome.fault or "wrong", *outcomes)
    last = run(words, folder)
    verdict = world.ends(name, last)
    if verdict == "equal" and not asked:  # it had ended before
        verdict = "result"
    return Case.of("kill", words, ", ".join(done), verdict, *outcomes, last)
