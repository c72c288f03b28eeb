"""The `mast` command: words to functions.

Nothing is imported here before signals are answered, as they may come at any moment.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mast.core.stopping import answer_signals

if TYPE_CHECKING:
    from mast.cli.verbs import Program


def main(arguments: Sequence[str] | None = None, program: "Program | None" = None) -> int:
    """Run a command.

    Args:
        arguments: The words after `mast`. None: those of the process, which is the command's alone:
            signals end it in one line.
        program: The program that they are of; `mast` if None.

    Returns:
        The exit code: 0; 2 for an error that the user can fix, reported in one line; 1 for a fault
        of this program, in one line too, or raised if MAST_DEBUG is set; 128 and the number of the
        signal that stopped it, such as 130 for Ctrl-C.
    """
    if arguments is None:
        answer_signals()
    from mast.cli.command import run

    return run(arguments, program)
