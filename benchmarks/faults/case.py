"""What a case says when it is done."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from faults.process import Outcome

FAULTS = ("code", "traceback", "hang", "wrong")


@dataclass(frozen=True)
class Case:
    """One attack on one command, and what came of it.

    Attributes:
        kind: "options", "files", "disk", "kill", "lies", "names", "ambient", "writers", "hostile",
            "stores".
        words: The command.
        attack: What was done, in words.
        verdict: "result" (the right one, where it is known), "refused" (in one line), "equal" (a
            command that was stopped in the middle, and run again), or one of `FAULTS`; "code" is
            what a file, a name or an option ran.
        said: What it said at the end.
        seconds: How long it took.
        more: What helps to mend it.
    """

    kind: str
    words: str
    attack: str
    verdict: str
    said: str
    seconds: float
    more: str

    @classmethod
    def of(
        cls, kind: str, words: Sequence[str], attack: str, verdict: str, *outcomes: Outcome
    ) -> "Case":
        """A case from how its commands ended."""
        said = " | ".join(outcome.summary for outcome in outcomes)
        more = outcomes[-1].said[-3000:] if verdict in FAULTS else ""
        seconds = sum(outcome.seconds for outcome in outcomes)
        return cls(kind, shlex.join(words), attack, verdict, said, seconds, more)
