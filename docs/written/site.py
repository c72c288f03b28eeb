"""Pages of the site that are made of something else: its first page, and the reference."""

import re

from mast import PUBLIC
from written.result_files import ROOT


def home() -> str:
    """The README, whose links lead from the folder of the documents."""
    text = (ROOT / "README.md").read_text()
    lines = [line for line in text.splitlines() if "](CONTRIBUTING.md)" not in line]
    return re.sub(r"\]\(docs/", "](", "\n".join(lines)) + "\n"


def reference() -> str:
    """What `import mast` offers, from the docstrings."""
    entries = "\n\n".join(f"::: {module}.{name}" for name, module in PUBLIC.items())
    return f"# Reference\n\nWhat `import mast` offers.\n\n{entries}\n"
