"""Run a command, and say in one line why it ended early.

The module of a verb is imported when the verb is used.
"""

import io
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from mast.cli.verbs import MAST, REGISTRIES, TOPICS, Program, named, show
from mast.cli.words import arguments_of, help_of
from mast.core import entry
from mast.core.errors import UserError, is_out_of_memory, one_line, unknown
from mast.core.processes import ProcessEndedError
from mast.core.stopping import Interrupted, interruptible, is_first_here, is_launched, leave_message

_SHOWN = (*TOPICS, *REGISTRIES)
BROKEN_PIPE = 141  # as shells have it: 128 and SIGPIPE, which Windows does not have


class _ClosedPipeError(Exception):
    """The reader of the output is gone, as after `| head`."""


@contextmanager
def _printing() -> Iterator[None]:
    """Print to stdout, and notice at once if its reader is gone: other pipes may break as well."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise _ClosedPipeError from error


def run(arguments: Sequence[str] | None, program: Program | None) -> int:
    """See `mast.cli.main`."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files need not fit the terminal
            stream.reconfigure(errors="backslashreplace")
    entry.alone = True
    try:
        _run(words, program or MAST)
    except SystemExit as ended:  # the processes of `mast.core.processes` did the work
        return int(ended.code or 0)
    except ProcessEndedError as error:
        return _fail(str(error), error.code)
    except UserError as error:
        return _fail(str(error))
    except Interrupted as stopped:
        return _stop(str(stopped), stopped.code)
    except KeyboardInterrupt:
        return _stop("interrupted; the same command continues from what was saved", 130)
    except UnicodeEncodeError as error:  # by a library that writes names as UTF-8 alone
        return _fail(f"{error.object[:200]!r} is not UTF-8: rename it, or set LC_ALL=C.UTF-8")
    except _ClosedPipeError:  # such as `mast show config | head`
        _drop_output()
        return BROKEN_PIPE
    except Exception as error:
        if os.environ.get("MAST_DEBUG"):
            raise
        if isinstance(error, OSError) and error.strerror is not None:
            named = "" if error.filename is None else f"{error.filename}: "
            return _fail(f"{named}{error.strerror}")
        what = " ".join(str(error).split())[:300]
        if is_out_of_memory(error):
            return _fail(
                f"out of memory ({what}). Smaller batches, smaller images or a smaller encoder help"
            )
        fault = (
            f"{type(error).__name__}: {what}. This is a fault of mast: MAST_DEBUG=1 shows where."
        )
        return _fail(fault, 1)
    finally:
        entry.alone, entry.advised = False, True
    return 0


def _fail(message: str, code: int = 2) -> int:
    """Print why a command cannot do what was asked; its exit code."""
    from mast.core.display import say

    if not leave_message(message):
        try:
            say(f"error: {message}", style="red")
        except OSError:  # the terminal is gone
            _drop_output()
    return code


def _stop(message: str, code: int) -> int:
    """Print which signal stopped a command, once for all of its processes; the exit code."""
    if is_first_here() and not is_launched():
        try:
            print(one_line(message), file=sys.stderr, flush=True)
        except OSError:  # the terminal is gone, and its signal may be why
            _drop_output()
    return code


def _drop_output() -> None:
    """Write nothing any more, not even what Python would at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)


def _run(words: list[str], program: Program) -> None:
    others = {"show": " | ".join(_SHOWN)}
    if not words or words[0] in ("-h", "--help"):
        summaries = {name: verb.summary for name, verb in program.verbs.items()}
        _print(_overview(program.name, "COMMAND", summaries | others))
    elif words[0] == "--version":
        from importlib.metadata import version

        _print(version("mast-ssl"))
    elif words[0] in others:
        if len(words) == 1 or words[1] in ("-h", "--help"):
            summaries = {name: verb.summary for name, verb in TOPICS.items()}
            listed = {name: f"{name} by name, with a line on each" for name in REGISTRIES}
            _print(_overview(f"{program.name} show", "TOPIC", summaries | listed))
        elif words[1] in REGISTRIES and len(words) == 2:
            program.register()
            module, _, registry = REGISTRIES[words[1]].partition(":")
            rows = getattr(import_module(module), registry)
            _print(_rows({name: row.title for name, row in rows.items()}))
        elif words[1] not in TOPICS:
            raise unknown("topic", words[1], _SHOWN)
        else:
            _call(f"show {words[1]}", words[2:], program)
    elif words[0] not in program.verbs:
        raise unknown("command", words[0], [*program.verbs, *others])
    else:
        _call(words[0], words[1:], program)


def _print(text: str) -> None:
    with _printing():
        print(text)


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


def _use_threads(given: dict[str, Any]) -> None:
    """Use as many threads as the user says; where nobody does, as many as are fastest."""
    threads = given.pop("threads", None)
    entry.advised = threads is not None
    if threads is not None:
        import torch

        from mast.core.launch import check_threads

        check_threads(threads)
        torch.set_num_threads(threads)


def _call(name: str, words: list[str], program: Program) -> None:
    """Call a verb's function with the arguments that words give, and show its result."""
    asked = bool({"-h", "--help"} & {*words})
    if sys.flags.optimize > 1 and (asked or name == "show recipes"):
        raise UserError("PYTHONOPTIMIZE=2 takes away the texts that are to be shown: unset it")
    if asked:
        with _printing():
            help_of(name, program)
        return
    try:
        os.getcwd()
    except OSError as error:
        raise UserError("the current folder is gone: change to one that is there") from error
    from mast.core.display import doing, say, show_warnings

    show_warnings()
    program.register()
    verb = named(name, program)
    arguments = arguments_of(name, words, program)
    _use_threads(arguments)
    with interruptible():
        with doing(name):
            result = verb.load()(**arguments)
        with _printing():
            show(result)
        following = verb.next(arguments, result)
        if is_first_here() and following and following.isprintable():
            with suppress(OSError):  # the terminal is gone, and the work is done
                say(f"next: {program.name} {following}")
