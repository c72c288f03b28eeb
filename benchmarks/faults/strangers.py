"""What a stranger's text may not do where it is printed or written: act."""

import csv
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from faults.process import Outcome

# In a page each of these asks for, or runs, what is called "canary".
MARKUP = (
    "<script>canary()</script>",
    '<g onload="canary()"/>',
    '<a href="javascript:canary()"><text>x</text></a>',
    '<a xlink:href=" java&#10;script:canary()"><text>x</text></a>',
    '<foreignObject><iframe srcdoc="canary"/></foreignObject>',
    "<style>@import url(http://canary/);</style>",
    '<g style="fill:url(http://canary/#x)"/>',
    '<image href="http://canary/x.png"/>',
    '<use href="http://canary/x.svg#a"/>',
    '<set attributeName="onload" to="canary()"/>',
)
ASKS = {"href", "xlink:href", "src", "srcset", "srcdoc", "style", "to", "values", "action", "data"}
FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
# Control characters but the end of a line, and what turns the direction of text.
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffd]")


class _Active(HTMLParser):
    """Looks for a canary where it acts."""

    found = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.within = tag
        for name, value in attrs:
            asks = name.startswith("on") or name in ASKS
            self.found |= asks and "canary" in (value or "")

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag: str) -> None:
        self.within = ""

    def handle_data(self, data: str) -> None:
        self.found |= getattr(self, "within", "") in ("script", "style") and "canary" in data


def acts(folder: Path) -> str | None:
    """The first file below a folder, of those that people open, in which a stranger's text acts."""
    for file in sorted(folder.rglob("*")):
        if file.suffix in LOOKS and file.is_file() and "analysis" not in file.parts:
            text = file.read_bytes().decode("utf-8", "replace")
            if LOOKS[file.suffix](text):
                return str(file.relative_to(folder))
    return None


def page_acts(text: str) -> bool:
    """Whether a page would run, or ask for, a canary."""
    parser = _Active()
    parser.feed(text)
    parser.close()
    return parser.found


def table_acts(text: str) -> bool:
    """Whether a spreadsheet would take a cell for a formula."""
    return any(
        cell[0] in FORMULA and not _is_number(cell)
        for row in csv.reader(io.StringIO(text, newline=""))
        for cell in row
        if cell
    )


def card_acts(text: str) -> bool:
    """Whether Markdown would show a link, an image or an element of a canary."""
    text = re.sub(r"`[^`\n]+`|^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return bool(re.search(r"(?<!\\)\]\([^)]*canary|(?<!\\)<[a-z][^>]*canary", text, re.IGNORECASE))


LOOKS = {".html": page_acts, ".csv": table_acts, ".md": card_acts}


def printed(outcome: Outcome) -> Iterator[str]:
    """What is wrong with what a command printed and said of strangers' names."""
    for text in (outcome.printed, outcome.said):
        if match := CONTROLS.search(text):
            yield f"it prints {match[0]!r}"
        if "\nerror: forged" in f"\n{text}":
            yield "a name forges a line"
        if "rich" in text.replace("[red]rich[", "").replace("[link=x]rich", ""):
            yield "a name is taken for markup"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
