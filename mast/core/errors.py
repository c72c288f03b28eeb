"""Errors that are shown to users as one sentence, and what may be in it: nothing that acts."""

import re
from collections.abc import Iterable

LISTED = 24  # more choices than this are counted, not listed
# What moves a cursor, starts a sequence of commands to a terminal, turns the direction of a text,
# or cannot be seen. U+200C and U+200D stay: words of Persian and many emoji are made with them.
_ACTING = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
_ACTS = re.compile(f"[{_ACTING}]")
_BREAKS = re.compile(rf"[{_ACTING}]|\n(?!  )")


class UserError(ValueError):
    """The user asked for something that cannot be done; the message says what to do instead.

    The command line prints it as one line and exits with code 2; in Python it is a
    `ValueError` like any other, of which IPython and notebooks show the message alone.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"error: {one_line(str(self))}"]


class DivergedError(UserError):
    """A training stopped, as a loss or what an update left is not finite."""


class OutOfMemoryError(UserError):
    """A step needs more memory than there is; the message names the options that shrink it."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, on the CPU or a GPU; PyTorch has no type for the first."""
    texts = ("can't allocate memory", "CUDA out of memory")
    return isinstance(error, MemoryError) or any(text in str(error) for text in texts)


def unknown(kind: str, name: str, choices: Iterable[str]) -> UserError:
    """An error for a name that is not in a registry, with the nearest valid one.

    `kind` is what the name names, such as "operator" or "recipe".
    """
    from difflib import get_close_matches

    names = list(choices)
    last = str(name).rpartition(".")[2]
    # optimizer.lr for lr, and the other way round
    nested = [choice for choice in names if choice == last or choice.endswith(f".{last}")]
    close = get_close_matches(str(name), nested or names, n=1, cutoff=0.0 if nested else 0.6)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return UserError(
        f"unknown {kind} {name!r:.200}.{hint} Choose from: {', '.join(names[:LISTED])}{more}."
    )


def counted(count: int, noun: str) -> str:
    """A number of things, such as "1 epoch" or "1,000 epochs"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def visible(text: str) -> str:
    """Text with control characters, such as ESC, as what Python writes for them, such as \\x1b.

    Names come from others' files and folders. What is printable, and line ends, stay as they are.
    """
    return _ACTS.sub(_escape, text)


def one_line(text: str) -> str:
    """`visible` text whose line ends are escapes too, but for those before indented lines."""
    return _BREAKS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
