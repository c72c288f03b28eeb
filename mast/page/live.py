"""A run while it trains, from the files in its folder alone: where it stands, and its curves."""

import json
import math
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, final

from markupsafe import Markup

from mast.analyses import Subject
from mast.analyses.curves import Curves
from mast.analyses.figure import as_svg
from mast.config import PretrainConfig, configuration_of
from mast.core.files import as_unicode
from mast.core.memory import process_memory
from mast.core.run import RunFolder
from mast.page.answer import health, in_words, last_values, training_summary
from mast.page.html import element, inlined, policy, template
from mast.page.serve import Answer
from mast.runs.subject import stages_of

RECENT = 50  # lines of the log that tell how fast it goes
NO_LOG = (0, 0)
PAUSE = 20.0  # seconds without new curves for each second that it takes to draw them


@dataclass(frozen=True)
class Standing:
    """Where a run stands.

    Attributes:
        name: Of the run.
        trained: What it trains, in a sentence.
        state: Whether a process trains in it, in a sentence.
        good: Whether it goes well; None where that is not known.
        verdict: Why, in a sentence; empty where it is not known.
        warning: The last one that was logged.
        facts: Its numbers, by what they are.
    """

    name: str
    trained: str
    state: str
    good: bool | None
    verdict: str
    warning: str | None
    facts: tuple[tuple[str, str], ...]


def standing(
    folder: RunFolder, config: PretrainConfig, log: Sequence[Mapping[str, Any]]
) -> Standing:
    """Where a run stands.

    Args:
        folder: The run.
        config: Its configuration.
        log: Lines of `metrics.jsonl`.
    """
    provenance = folder.read_provenance()
    found = health(log, provenance.get("representation"))
    warnings = [f"{line['warning']} (step {line['step']:,})" for line in log if "warning" in line]
    complete = folder.encoder.is_file()
    state, training = _state(folder)
    known = last_values(log)
    left = seconds_left(log, config.epochs) if training else None
    facts = {
        "Epoch": f"{known['epoch']:.4g} of {config.epochs}" if "epoch" in known else None,
        "Time left": _time(left),
        "Time spent": _time(known.get("seconds")),
        "Images a second": _number(known.get("images_per_second"), ",.0f"),
        "Loss": _number(known.get("loss"), ".2f"),
        "kNN on its own images": _number(known.get("online/knn"), ".1f", " %"),
        "Effective rank": _number(known.get("online/effective_rank"), ".0f"),
        "Memory of its process": _memory(folder) if training else None,
        "Free disk": f"{shutil.disk_usage(folder.path).free / 1e9:,.1f} GB",
        "Last logged": _last_logged(folder) if training else None,
    }
    return Standing(
        name=folder.path.resolve().name,
        trained=training_summary(config, provenance, "trained" if complete else "trains"),
        state="Complete." if complete else state,
        good=found.good,
        verdict="" if found.good is None else found.verdict,
        warning=warnings[-1] if warnings else None,
        facts=tuple((name, text) for name, text in facts.items() if text is not None),
    )


def seconds_left(log: Sequence[Mapping[str, Any]], epochs: int) -> float | None:
    """How long the rest of a run takes at the speed of the last lines; None: it is not known.

    Args:
        log: Lines of `metrics.jsonl`.
        epochs: Of the run.
    """
    timed = [(line["epoch"], line["seconds"]) for line in log if {"epoch", "seconds"} <= set(line)]
    if not timed:
        return None
    (first_epoch, first_s), (epoch, seconds) = timed[-RECENT:][0], timed[-1]
    if epoch <= first_epoch:
        return None
    return max(0.0, (epochs - epoch) * (seconds - first_s) / (epoch - first_epoch))


def _state(folder: RunFolder) -> tuple[str, bool]:
    """Whether a process trains in the folder, as a sentence too."""
    holder = folder.read_holder()
    if holder is not None and not folder.encoder.is_file():
        process, machine = holder
        if machine != socket.gethostname():
            return f"Running as process {process} on {machine}, as far as its folder says.", True
        if process_memory(process) is not None or not Path("/proc/self/status").is_file():
            return f"Running as process {process}.", True
    return "Not running: the same mast pretrain command continues it.", False


def _memory(folder: RunFolder) -> str | None:
    holder = folder.read_holder()
    if holder is None or holder[1] != socket.gethostname():
        return None
    size = process_memory(holder[0])
    return None if size is None else f"{size / 1e9:.1f} GB"


def _last_logged(folder: RunFolder) -> str | None:
    if not folder.metrics.is_file():
        return None
    return f"{in_words(max(0.0, time.time() - folder.metrics.stat().st_mtime))} ago"


def _time(seconds: float | None) -> str | None:
    return in_words(seconds) if seconds is not None and math.isfinite(seconds) else None


def _number(value: float | None, form: str, unit: str = "") -> str | None:
    if value is None:
        return None
    return f"{value:{form}}{unit}" if math.isfinite(value) else "not finite"


@final
class LivePage:
    """The page of a run while it trains; threads may ask for it at the same time.

    The curves are drawn again when the log has grown, but seldom enough to leave the processor to
    the training.

    Args:
        folder: The run.

    Raises:
        UserError: It is none, or its configuration cannot be read.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder.require()
        self._config = configuration_of(folder)
        self._lock = Lock()
        self._read = NO_LOG  # size and time of the log that was read
        self._drawn: tuple[int, int] | None = None  # and drawn
        self._metrics: list[dict[str, Any]] = []
        self._curves = Markup()
        self._wait_until = 0.0

    def parts(self) -> dict[str, str]:
        """The parts of the page that change, as HTML by the ids of their elements."""
        with self._lock:
            self._read_log()
            if self._read != self._drawn and time.monotonic() >= self._wait_until:
                began = time.monotonic()
                self._curves = self._draw()
                self._drawn = self._read
                self._wait_until = time.monotonic() + PAUSE * (time.monotonic() - began)
            now = standing(self.folder, self._config, self._metrics)
            return {
                "now": as_unicode(template("live_parts.html.jinja").module.now(now)),  # type: ignore[attr-defined]
                "curves": as_unicode(self._curves),
            }

    def html(self, live: bool = True) -> str:
        """The whole page.

        Args:
            live: Whether it asks its server for what is new; otherwise it stays as it is.
        """
        script = inlined("live.js") if live else Markup()
        return as_unicode(
            template("live.html.jinja").render(
                name=self.folder.path.resolve().name,
                parts={name: Markup(part) for name, part in self.parts().items()},
                style=inlined("page.css"),
                script=script,
                policy=policy(script, "; connect-src 'self'" if live else ""),
            )
        )

    def answers(self) -> dict[str, Answer]:
        """What its server answers, by path."""
        return {
            "/": Answer("text/html", self.html),
            "/parts.json": Answer("application/json", lambda: json.dumps(self.parts())),
        }

    def _read_log(self) -> None:
        state = NO_LOG
        if self.folder.metrics.is_file():
            status = self.folder.metrics.stat()
            state = (status.st_size, status.st_mtime_ns)
        if state != self._read:
            self._metrics, self._read = self.folder.read_metrics(), state

    def _draw(self) -> Markup:
        """The curves, or why there are none."""
        subject = Subject(self.folder.path.name, stages=stages_of(self._config), log=self._metrics)
        curves = Curves()
        figure, lacking = None, curves.lacking(subject)
        if lacking is None:
            drawn = curves.draw(curves.compute(subject))
            figure = element(as_svg(drawn, "curves"), "curves", "What was logged, over the epochs")
        module = template("live_parts.html.jinja").module
        return Markup(module.curves(figure, lacking))  # type: ignore[attr-defined]
