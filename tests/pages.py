"""A run folder that looks trained, measured and analyzed, without any training; and its page."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import yaml
from subjects import whole

import mast
from mast.analyses import ANALYSES
from mast.commands.analyze import insights_of
from mast.config import record
from mast.core.run import RunFolder
from mast.evaluation.result import Result, TargetResult
from paper.analyses import FIGURES

OPERATORS = ("rotate", "shear_x", "invert")
Visit = Callable[..., AbstractContextManager[Any]]  # opens a page in a browser
NASTY = '</script><b>&"'  # as a class may be called


def make_run(folder: Path, recipe: str = "mast_c5_small", **changes: Any) -> RunFolder:
    """The folder of a finished run, with a log and nothing else."""
    run = RunFolder(folder)
    config = mast.configure(recipe, data="photos", out=str(folder), size=32, **changes)
    folder.mkdir(parents=True)
    run.config.write_text(yaml.safe_dump(record(config), sort_keys=False))
    run.encoder.touch()
    for line in LOG:
        run.append_metrics(line)
    return run


LOG: tuple[dict[str, Any], ...] = (
    {"step": 1, "epoch": 0.5, "loss": 4.0, "lr": 0.1, "stat/embedding_std": 0.5, "seconds": 9.0},
    {"step": 2, "epoch": 1.0, "loss": 3.0, "lr": 0.1, "stat/embedding_std": 0.8, "seconds": 70.0},
    {"step": 2, "epoch": 1, "online/knn": 30.0, "online/effective_rank": 7.0},
)


def measure(
    run: RunFolder, protocol: str, percent: Sequence[float], by_chance: float | None = None
) -> None:
    """Give a run a result: of each class an accuracy, on 40 images."""
    targets = {}
    for at, value in enumerate(percent):
        each_N = (torch.arange(40) < 0.4 * value).float()
        values = {"top1": 100 * float(each_N.mean()), "top1_low": value - 5, "top1_high": value + 5}
        targets[f"task {at}"] = TargetResult(
            {**values, "mean_per_class": value - 1},
            each={"top1": each_N},
            by_chance={} if by_chance is None else {"top1": by_chance},
        )
    settings = {"protocol": {"seed": 0, "resamples": 20}}
    Result(protocol, "photos/test", targets, settings, {}, {}, images="the same").write(run.path)


def look_into(run: RunFolder, names: Sequence[str], operators: tuple[str, ...] = OPERATORS) -> None:
    """Make analyses, the paper's too, of ten images, of which a class has a nasty name."""
    rows = ANALYSES | FIGURES
    asked = {name: (rows[name].title, rows[name].kind()) for name in names}
    subject = whole(operators)
    assert subject.images is not None
    random = np.random.default_rng(0)
    images = replace(
        subject.images,
        thumbnails_NPP3=random.integers(0, 255, (10, 16, 16, 3)).astype(np.uint8),
        classes={"class": ("cat", NASTY)},
    )
    subject = replace(subject, name=run.path.name, log=run.read_metrics(), images=images)
    with patch("mast.analyses.figure.write_atomically"):  # the .png, which no page shows
        insights_of(subject, asked, run.analysis)


def check_colors(page: Any, scheme: str) -> None:
    """An open page is light or dark, and its text stands out."""
    ground, ink = page.evaluate(
        "(({backgroundColor, color}) => [backgroundColor, color])(getComputedStyle(document.body))"
    )
    lightness = [sum(map(int, each.strip("rgb()").split(","))) for each in (ground, ink)]
    assert (lightness[0] > lightness[1]) == (scheme == "light")
    assert abs(lightness[0] - lightness[1]) > 400


def shown_on(file: Path) -> dict[str, Any]:
    """What a page of photos shows, as its script reads it."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', file.read_text())
    assert found is not None
    shown: dict[str, Any] = json.loads(found[1])
    return shown


class Page(HTMLParser):
    """A page whose elements close in order: its text, tags, ids, links and sources."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.tags: list[str] = []
        self.found: dict[str, list[str]] = {"href": [], "src": [], "id": []}
        self.feed(text)
        assert self.open == []
        assert {link.removeprefix("#") for link in self.found["href"]} <= {*self.found["id"]}
        assert all(source.startswith("data:image/") for source in self.found["src"])
        assert len(self.found["id"]) == len(set(self.found["id"]))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in {"meta", "img", "input"}:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), "the policy forbids handlers in attributes"
            if name in self.found:
                self.found[name].append(str(value))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())
