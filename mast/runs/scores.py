"""What was measured of a run."""

from collections import Counter
from collections.abc import Callable, Iterator

from mast.analyses import Score
from mast.core.files import named
from mast.core.run import RunFolder
from mast.data import describe, split_cut
from mast.evaluation.result import Result, readable, results_in


def parts_of(data: str) -> dict[str, str]:
    """Train, val and test of a set that has both train and test; empty for images alone."""
    if ("@" in data or "+" in data) and not named(split_cut(data)[0]).is_dir():
        return {}
    parts = describe(data).with_test().parts
    return dict(parts) if {"train", "test"} <= parts.keys() else {}


def scores_of(
    folder: RunFolder, accept: Callable[[Result], bool] = lambda _: True
) -> Iterator[Score]:
    """The scores of a run, of all results or those accepted."""
    results = results_in(folder.path)
    sets = {result.set_name for result in results}
    names = Counter(map(readable, sets))
    for result in filter(accept, results):
        short_name = readable(result.set_name)
        name = short_name if names[short_name] == 1 else result.set_name  # two sets that end alike
        for target, measured in result.targets.items():
            for measure in measured.measures():
                value, ends = measured.values[measure], measured.interval(measure) or (None, None)
                yield Score(result.protocol, name, target, measure, value, *ends)
