"""Several small pretrainings side by side, each in a process of its own."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
import yaml

from mast.augment import Pipeline
from mast.commands.pretrain import pretrain
from mast.config import PretrainConfig, record
from mast.core.display import doing, say
from mast.core.errors import UserError
from mast.core.launch import cores, find_device
from mast.core.run import RunFolder
from mast.data import open_canvas

REFUSED = 2  # exit code of a child whose configuration or images cannot be used
# The thread stops a child whose parent is gone: its standard input is closed then. What a terminal
# sends to all processes reaches the parent alone, which stops each child once.
CHILD = f"""
import os, signal, sys, threading
def ask_to_stop():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=ask_to_stop, daemon=True).start()
from mast.commands.pretrain import pretrain
from mast.config import read
from mast.core.errors import UserError
from mast.core.stopping import Interrupted
try:
    pretrain(read(sys.argv[1]))
except UserError as error:
    print(" ".join(str(error).split()), file=sys.stderr)
    sys.exit({REFUSED})
except Interrupted as stopped:
    sys.exit(stopped.code)
"""
POLL_S = 0.5


class Child(NamedTuple):
    """A process that pretrains, and where it does so."""

    name: str
    run: RunFolder
    process: "subprocess.Popen[bytes]"
    log: Path


def pretrain_together(configs: Mapping[str, PretrainConfig]) -> dict[str, RunFolder]:
    """Pretrain encoders so small that a step does not fill the cores.

    On a CPU each run has a process and its share of the cores: on two cores, three runs of the
    demo take two thirds of the time that they take one after the other. On a GPU, on a single
    core and under torchrun they follow one another in this process. The weights are those of
    `pretrain` with as many threads.

    Args:
        configs: The runs by name; each has a folder of its own, and one process.

    Returns:
        Their folders, by name.

    Raises:
        UserError: A configuration or images that cannot be used, or a run was killed. The others
            are stopped, and continue when this is called again.
        RuntimeError: A run failed otherwise, with what it said.
    """
    runs = {name: RunFolder(config.folder()) for name, config in configs.items()}
    assert len({run.path for run in runs.values()}) == len(runs), "runs share a folder"
    on_gpu = any(find_device(config.device).type == "cuda" for config in configs.values())
    if cores() == 1 or on_gpu or "WORLD_SIZE" in os.environ:
        return {name: pretrain(config) for name, config in configs.items()}
    share = max(1, cores() // len(configs))
    steps = sum(map(_prepared, configs.values()))
    children: list[Child] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name, config in configs.items():
                place = Path(folder) / str(len(children))
                own = replace(config, threads=config.threads or share)
                children.append(Child(name, runs[name], _started(own, place), _log(place)))
            _watch(children, steps)
            failed = [child for child in children if child.process.poll()]
        finally:
            for child in children:
                child.process.terminate()
            for child in children:
                child.process.communicate()  # waits, and closes its standard input
        for child in failed:
            raise _error(child)
    return runs


def _prepared(config: PretrainConfig) -> int:
    """The steps of a run, of which all is checked, decoded and compiled that each would repeat."""
    config.check_trainable()
    canvases = open_canvas(config.data, config.size)
    pipeline = Pipeline(config.preset, config.size)
    some = range(min(64, len(canvases)))  # so many that every operator acts on one
    pipeline.views(canvases.batch(some), pipeline.draw(len(some), torch.Generator()))
    return config.epochs * (len(canvases) // config.batch_size)


def _log(place: Path) -> Path:
    return place.with_suffix(".log")


def _started(config: PretrainConfig, place: Path) -> "subprocess.Popen[bytes]":
    """A process that pretrains and imports what this one would."""
    file = place.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(record(config), sort_keys=False))
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    with _log(place).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", CHILD, str(file)],
            stdin=subprocess.PIPE, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": paths},
            start_new_session=True,
        )  # fmt: skip


def _watch(children: Sequence[Child], steps: int) -> None:
    """Show how far all are together and what they warn of, until all ended or one failed."""
    say(f"{', '.join(child.name for child in children)}: {steps} steps, side by side")
    warned: set[tuple[str, str]] = set()
    with doing("training", steps, "steps", sum(map(_step, children))) as work:
        while True:
            codes = [child.process.poll() for child in children]
            speed = 0.0
            for child, code in zip(children, codes, strict=True):
                lines = child.run.read_metrics()
                speeds = [line["images_per_second"] for line in lines if "loss" in line]
                speed += speeds[-1] if speeds and code is None else 0.0
                said = {(child.name, line["warning"]) for line in lines if "warning" in line}
                for name, warning in sorted(said - warned):
                    say(f"warning: {name}: {warning}", style="yellow")
                warned |= said
            each = {child.name: _step(child) for child in children}
            text = "  ".join(f"{name} {step}" for name, step in each.items())
            work.update(sum(each.values()), text, f"{speed:,.0f} images/s" if speed else None)
            if any(codes) or None not in codes:
                return
            time.sleep(POLL_S)


def _step(child: Child) -> int:
    lines = child.run.read_metrics()
    return int(lines[-1]["step"]) if lines else 0


def _error(child: Child) -> Exception:
    """What to raise for a child that failed."""
    place, code = f"{child.name}, {child.run.path}", child.process.returncode
    said = child.log.read_text(errors="replace").strip()
    if code < 0:
        return UserError(f"{place}: killed by signal {-code}; the same command continues it")
    if code == REFUSED:
        return UserError(f"{place}: {said.splitlines()[-1]}")
    return RuntimeError(f"{place}: exit code {code}\n{said}")
