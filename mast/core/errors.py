"""Errors shown to users as one sentence, without control characters."""

import re
from collections.abc import Iterable

LISTED = 24  # longest list of choices; the rest is counted
# Characters that move a cursor, control a terminal, change the direction of text, or are invisible.
# U+200C and U+200D stay, as Persian words and many emoji need them.
_ACTING = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
_ACTS = re.compile(f"[{_ACTING}]")
_BREAKS = re.compile(rf"[{_ACTING}]|\n(?!  )")


class UserError(ValueError):
    """An invalid request; the message says what was expected and what came.

    The command line prints it as one line and exits with code 2. In Python it is a `ValueError`;
    IPython and notebooks show only its message.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"error: {one_line(str(self))}"]


class DivergedError(UserError):
    """A training stopped, as a loss or an updated weight is not finite."""


class OutOfMemoryError(UserError):
    """A step ran out of memory; the message names options that need less."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, on CPU or GPU; PyTorch has no exception type for the CPU."""
    texts = ("can't allocate memory", "CUDA out of memory")
    return isinstance(error, MemoryError) or any(text in str(error) for text in texts)


def unknown(kind: str, name: str, choices: Iterable[str]) -> UserError:
    """An error for an unknown name, with the nearest valid one.

    `kind` describes the name, such as "operator" or "recipe".
    """
    from difflib import get_close_matches

    names = list(choices)
    last = str(name).rpartition(".")[2]
    # suggests optimizer.lr for lr, and vice versa
    nested = [choice for choice in names if choice == last or choice.endswith(f".{last}")]
    close = get_close_matches(str(name), nested or names, n=1, cutoff=0.0 if nested else 0.6)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return UserError(
        f"unknown {kind} {name!r:.200}.{hint} Choose from: {', '.join(names[:LISTED])}{more}."
    )


def counted(count: int, noun: str) -> str:
    """A count with its noun, such as "1 epoch" or "1,000 epochs"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def visible(text: str) -> str:
    """Text with control characters escaped as in Python: ESC becomes \\x1b.

    Names come from untrusted files and folders. Printable characters and line ends are unchanged.
    """
    return _ACTS.sub(_escape, text)


def one_line(text: str) -> str:
    """`visible` text with line ends escaped, too, except before indented lines."""
    return _BREAKS.sub(_escape, text)


def reason_of(error: Exception) -> str:
    """The message of a library's error, on one line; its type where it has none."""
    reason = getattr(error, "strerror", None) or str(error)
    return " ".join(reason.split()) or type(error).__name__


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
