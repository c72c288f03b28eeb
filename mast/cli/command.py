"""Run a command, and report in one line why it ended early.

A verb's module is imported only when the verb is used.
"""

import io
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib import import_module

from mast.cli.verbs import MAST, REGISTRIES, TOPICS, Program, named, show
from mast.cli.words import arguments_of, help_of
from mast.core import stopping
from mast.core.errors import UserError, is_out_of_memory, one_line, unknown

_SHOWN = (*TOPICS, *REGISTRIES)
BROKEN_PIPE = 141  # as shells have it: 128 and SIGPIPE, which Windows does not have


def run(arguments: Sequence[str] | None, program: Program | None) -> int:
    """See `mast.cli.main`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files need not fit the terminal
            stream.reconfigure(errors="backslashreplace")
    if arguments is None:
        stopping.answer_signals(raising=True)
    try:
        _run(words, program or MAST)
        sys.stdout.flush()
    except BaseException as error:
        why: BaseException = next(iter(stopping.received), error)
        if isinstance(why, BrokenPipeError):  # such as `mast show config | head`
            _drop_output()
            return BROKEN_PIPE
        code, message = _ending(why)
        if os.environ.get("MAST_DEBUG") and not isinstance(why, UserError | KeyboardInterrupt):
            raise
        _say(code, message)
        return code
    return 0


def _ending(error: BaseException) -> tuple[int, str]:
    """The exit code of an error, and its message."""
    what = " ".join(str(error).split())[:300]
    if isinstance(error, UserError):
        return 2, str(error)
    if isinstance(error, stopping.Interrupted):
        return error.code, str(error)
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted; the same command resumes"
    if isinstance(error, UnicodeEncodeError):  # by a library that writes names as UTF-8 alone
        return 2, f"{error.object[:200]!r} is not UTF-8: rename it, or set LC_ALL=C.UTF-8"
    if isinstance(error, OSError) and error.strerror is not None:
        return 2, ": ".join(map(str, filter(None, (error.filename, error.strerror))))
    if isinstance(error, Exception) and is_out_of_memory(error):
        return 2, (
            f"out of memory ({what}). Try smaller batches, smaller images or a smaller encoder"
        )
    return 1, f"{type(error).__name__}: {what}. This is a bug in mast: MAST_DEBUG=1 shows where."


def _say(code: int, message: str) -> None:
    """Print why a command ended."""
    try:
        if code <= 2:
            from mast.core.display import say

            say(f"error: {message}", style="red")
        elif stopping.is_first_here():
            print(one_line(message), file=sys.stderr, flush=True)
    except OSError:  # the terminal is gone, and its signal may be why
        _drop_output()


def _drop_output() -> None:
    """Discard all further output, including Python's at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)


def _run(words: list[str], program: Program) -> None:
    first, second = [*words, "", ""][:2]
    if first in ("", "-h", "--help"):
        summaries = {name: verb.summary for name, verb in program.verbs.items()}
        print(_overview(program.name, "COMMAND", {**summaries, "show": " | ".join(_SHOWN)}))
    elif first == "--version":
        from importlib.metadata import version

        print(version("mast-ssl"))
    elif first == "show" and second in ("", "-h", "--help"):
        summaries = {name: verb.summary for name, verb in TOPICS.items()}
        listed = {name: f"{name} by name, with a line on each" for name in REGISTRIES}
        print(_overview(f"{program.name} show", "TOPIC", summaries | listed))
    elif first == "show" and second in REGISTRIES:
        if more := {*words[2:]} - {"-h", "--help"}:
            raise UserError(f"show {second}: expected no options, got {more.pop()!r}")
        program.register()
        module, _, registry = REGISTRIES[second].partition(":")
        rows = getattr(import_module(module), registry)
        print(_rows({name: row.title for name, row in rows.items()}))
    elif first == "show" and second not in TOPICS:
        raise unknown("topic", second, _SHOWN)
    elif first == "show":
        _call(f"show {second}", words[2:], program)
    elif first not in program.verbs:
        raise unknown("command", first, [*program.verbs, "show"])
    else:
        _call(first, words[1:], program)


def _rows(texts: Mapping[str, str]) -> str:
    width = max(map(len, texts)) + 2
    indent = " " * (width + 2)
    return "\n".join(
        textwrap.fill(f"  {name:{width}}{text}", 79, subsequent_indent=indent)
        for name, text in texts.items()
    )


def _overview(program: str, command: str, summaries: Mapping[str, str]) -> str:
    hint = f"`{program} {command} --help` lists its options."
    return f"usage: {program} {command} [options]\n\n{_rows(summaries)}\n\n{hint}"


def _call(name: str, words: list[str], program: Program) -> None:
    """Call a verb's function with parsed arguments, and show its result."""
    if {"-h", "--help"} & {*words}:
        help_of(name, program)
        return
    from mast.core.display import doing, show_warnings

    show_warnings()
    program.register()
    arguments = arguments_of(name, words, program)
    if (threads := arguments.pop("threads", None)) is not None:
        import torch

        from mast.core.launch import check_threads

        check_threads(threads)
        torch.set_num_threads(threads)
    with doing(name):
        result = named(name, program).load()(**arguments)
    show(result)
