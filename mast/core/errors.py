"""Errors that are shown to users as one sentence, without a traceback."""

from collections.abc import Iterable

LISTED = 24  # more choices than this are counted, not listed


class UserError(ValueError):
    """What the user asked for cannot be done; the message says what to do instead.

    The command line prints it as one line and exits with code 2; in Python it is a
    `ValueError` like any other.
    """


class DivergedError(UserError):
    """A training stopped, as a loss or what an update left is not finite."""


def unknown(kind: str, name: str, choices: Iterable[str]) -> UserError:
    """An error for a name that is not in a registry, with the nearest valid one.

    Args:
        kind: What the name names, such as "operator" or "recipe".
        name: The name that was given.
        choices: The valid names.

    Returns:
        The error, to be raised by the caller.
    """
    from difflib import get_close_matches

    names = list(choices)
    last = str(name).rpartition(".")[2]
    nested = [choice for choice in names if choice.endswith(f".{last}")]  # optimizer.lr for lr
    close = get_close_matches(str(name), nested or names, n=1, cutoff=0.0 if nested else 0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return UserError(
        f"unknown {kind} {name!r}.{hint} Choose from: {', '.join(names[:LISTED])}{more}."
    )
