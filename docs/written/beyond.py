"""What the study `beyond` found."""

import json

from experiments.beyond import Beyond
from written.result_files import RESULTS, link_table


def beyond() -> str:
    """Scores by set and encoder, with seeds, gains, rates and minutes."""
    folder = RESULTS / Beyond.results
    measured = {
        file.relative_to(folder).with_suffix("").as_posix(): json.loads(file.read_text())
        for file in sorted(folder.rglob("*.json"))
    }
    return f"{link_table('beyond', Beyond().table(measured), 'All rows')}."
