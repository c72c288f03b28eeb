"""The `mast` command: parses arguments and runs a command's function.

Signal handlers are installed before anything else is imported.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mast.core.stopping import answer_signals

if TYPE_CHECKING:
    from mast.cli.verbs import Program


def main(arguments: Sequence[str] | None = None, program: "Program | None" = None) -> int:
    """Run a command.

    Args:
        arguments: The arguments after `mast`. None: those of the process, which signals then end
            with a one-line message.
        program: The program to run; `mast` if None.

    Returns:
        The exit code: 0; 2 for an error that the user can fix, reported in one line; 1 for a bug,
        also reported in one line, or raised if MAST_DEBUG is set; 128 plus the number of the signal
        that stopped it, such as 130 for Ctrl-C.
    """
    if arguments is None:
        answer_signals()
    from mast.cli.command import run

    return run(arguments, program)
