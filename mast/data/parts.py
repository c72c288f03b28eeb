"""Which part of a set a name stands for: `train`, `Training`, `seg_test`, `valid`, `dev`."""

import re
from collections import defaultdict
from collections.abc import Iterable

PARTS = ("train", "val", "test")

_WORDS = {
    "train": re.compile(r"train(ing)?(set|data)?"),
    "val": re.compile(r"(val(id(ation)?)?|dev)(set|data)?"),
    "test": re.compile(r"test(ing)?(set|data)?"),
}
_PLAIN = frozenset({"set", "data", "dataset", "image", "images"})  # which no affix is made of


def part_of(name: str) -> tuple[str, str] | None:
    """The part that a name stands for, and what else it says: ("train", "seg") for `seg_train`.

    Case, digits and whatever stands between words do not count. None where no word is a part's,
    or words of two are.
    """
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    found = [
        (part, at)
        for at, word in enumerate(words)
        for part, of in _WORDS.items()
        if of.fullmatch(word)
    ]
    if len(found) != 1:
        return None
    ((part, place),) = found
    return part, " ".join(w for at, w in enumerate(words) if at != place and w not in _PLAIN)


def parts_among(names: Iterable[str]) -> dict[str, list[str]]:
    """The names that stand for parts of one set, by part; empty where they may well be classes.

    Such are a training part and another one that differ in nothing else (`seg_train`, `seg_test`),
    and names that say no more than a part, where there are no others. A part has several names
    where these do not tell which one it is.
    """
    groups, others = defaultdict[str, dict[str, list[str]]](lambda: defaultdict(list)), False
    for name in names:
        if known := part_of(name):
            part, affix = known
            groups[affix][part].append(name)
        else:
            others = True
    whole = {affix: of for affix, of in groups.items() if "train" in of and len(of) > 1}
    if not whole and groups.keys() == {""} and not others:
        whole = groups
    found = [whole[""]] if "" in whole else list(whole.values())
    return {
        part: [part] if part in of else of
        for part in PARTS
        if (of := [name for group in found for name in group.get(part, ())])
    }
