"""What a command takes, for argparse: built from its function, or kept for its help.

To build it, a command's function is imported and PyTorch with it, which takes seconds. So
`docs/generate.py` keeps the forms of all commands in a file, and `mast COMMAND --help` reads it.
"""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from mast.core.errors import UserError, visible

KEPT = Path(__file__).parent / "help.json"
FLAG = "flag"  # the action of an option that is there or not


class Parser(argparse.ArgumentParser):
    """argparse, whose errors are those of this package."""

    rare: list[argparse.Action]  # options that only `--help all` shows

    def format_help(self) -> str:
        return visible(super().format_help())  # the defaults may be those of a file

    def error(self, message: str) -> NoReturn:
        _, _, missing = message.partition("arguments are required: ")
        if missing:
            message = f"required: {missing}"
            if not missing.startswith("-"):  # it may have been read as one more value of an option
                message += f". The form is {self.usage}"
        raise UserError(f"{message}. See `{self.prog} --help`.")


class _Flag(argparse.Action):
    """An option that is there or not: `--download`, `--no_download`."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, option_string == self.option_strings[0])


class _Help(argparse.Action):
    """Print the help and exit: `--help` shows the common options, `--help all` every one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> NoReturn:
        assert isinstance(parser, Parser)
        if parser.rare and values is None:
            for action in parser.rare:
                action.help = argparse.SUPPRESS
            more = f"`{parser.prog} --help all` lists {len(parser.rare)} more options."
            parser.epilog = "\n\n".join(filter(None, [more, parser.epilog]))
        parser.print_help()
        parser.exit()


@dataclass
class Form:
    """What a command takes."""

    program: str  # its name, such as "mast pretrain"
    usage: str  # the first line of its help
    description: str
    epilog: str | None = None  # below the options
    # Of each argument its names, and how argparse takes it.
    arguments: list[tuple[list[str], dict[str, Any]]] = field(default_factory=list)

    def add(self, *names: str, **how: Any) -> None:
        """Add an argument, as to an argparse parser; `rare` ones only `--help all` shows."""
        self.arguments.append((list(names), how))

    def parser(self) -> Parser:
        """A parser that takes it, and prints its help."""
        parser = Parser(
            prog=self.program,
            usage=self.usage,
            description=self.description,
            epilog=self.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
            add_help=False,
        )
        parser.rare = []
        parser._negative_number_matcher = re.compile(r"-\.?\d")  # also -1e3, which it lacks
        parser.register("action", FLAG, _Flag)
        parser.add_argument(
            "-h", "--help", action=_Help, nargs="?", choices=["all"], metavar="all",
            help="show this help and exit; `all` shows every option",
        )  # fmt: skip
        for names, how in self.arguments:
            options = {key: value for key, value in how.items() if key != "rare"}
            action = parser.add_argument(*names, **options)
            parser.rare += [action] if "rare" in how else []
        return parser

    @classmethod
    def kept(cls, name: str) -> "Form":
        """The form of a command, such as "show views", as it was kept."""
        return cls(**json.loads(KEPT.read_text(encoding="utf-8"))[name])


def as_kept(forms: Mapping[str, Form]) -> str:
    """The file of the forms of all commands."""
    written = {name: asdict(form) for name, form in forms.items()}
    return json.dumps(written, indent=1, ensure_ascii=False) + "\n"
