"""Render a captured terminal (ANSI text on standard input) as docs/images/terminal.svg.

tmux capture-pane -e -p | python docs/images/terminal.py
"""

import io
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text


def main() -> None:
    text = Text.from_ansi(sys.stdin.read().rstrip() + "\n")
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(text)
    svg = console.export_svg(title="mast demo")
    Path(__file__).with_suffix(".svg").write_text(svg)


if __name__ == "__main__":
    main()
