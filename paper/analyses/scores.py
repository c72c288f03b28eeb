"""What was measured of a run, as numbers by task."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mast.analyses import Subject
from mast.core.run import RunFolder
from mast.evaluation.result import Result, readable, results_in


@dataclass(frozen=True)
class Score:
    """One measure of a test set, in percent, with the ends of its 95 % interval if it has one."""

    protocol: str
    set_name: str
    target: str
    measure: str
    value: float
    low: float | None = None
    high: float | None = None


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


def task_names(tasks: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Shortest distinct names of tasks (set, target).

    A set with one target, which is called "class", lends the task its own name.
    """
    tasks = list(tasks)
    several = len({name for name, _ in tasks}) > 1
    return {
        (name, target): name if target == "class" else f"{name}, {target}" if several else target
        for name, target in tasks
    }


def measures_by_task(subject: Subject, protocol: str) -> dict[str, dict[str, Score]]:
    """What a protocol measured of a run: name of the task to measure to score.

    The scores are those of the subject's extras, otherwise all of its folder.
    """
    known = subject.extras.get("scores")
    if known is None:
        known = () if subject.folder is None else scores_of(RunFolder(subject.folder))
    scores = [score for score in known if score.protocol == protocol]
    names = task_names((score.set_name, score.target) for score in scores)
    measures: dict[str, dict[str, Score]] = {}
    for score in scores:
        measures.setdefault(names[score.set_name, score.target], {})[score.measure] = score
    return measures
