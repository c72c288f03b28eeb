"""The `mast` command: words to functions; the only place that merges recipe < file < options.

Nothing is imported here before signals are answered, as they may come at any moment.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mast.core.stopping import end_by_signals

if TYPE_CHECKING:
    from mast.cli.options import arguments_of as arguments_of
    from mast.cli.verbs import TOPICS as TOPICS
    from mast.cli.verbs import VERBS as VERBS
    from mast.cli.verbs import Verb as Verb

_FROM = {
    "arguments_of": "mast.cli.options",
    "TOPICS": "mast.cli.verbs",
    "VERBS": "mast.cli.verbs",
    "Verb": "mast.cli.verbs",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: The words after `mast`. None: those of the process, which is the command's alone:
            signals end it in one line.

    Returns:
        The exit code: 0; 2 for an error that the user can fix, reported in one line; 1 for a fault
        of this program, in one line too, or raised if MAST_DEBUG is set; 128 and the number of the
        signal that stopped it, such as 130 for Ctrl-C.
    """
    if arguments is None:
        end_by_signals()
    from mast.cli.command import run

    return run(arguments)


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module 'mast.cli' has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)
