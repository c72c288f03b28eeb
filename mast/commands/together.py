"""Several small pretrainings side by side, each in a process of its own."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import yaml

from mast.augment import Pipeline
from mast.commands.pretrain import pretrain
from mast.config import PretrainConfig, record
from mast.core.display import TrainingDisplay
from mast.core.errors import UserError
from mast.core.launch import cores, find_device
from mast.core.run import RunFolder
from mast.data import open_canvas

CHILD = """
import sys
from mast.commands.pretrain import pretrain
from mast.config import read
from mast.core.errors import UserError
try:
    pretrain(read(sys.argv[1]))
except UserError as error:
    sys.exit(str(error))
"""
POLL_S = 0.5


def pretrain_together(configs: Mapping[str, PretrainConfig]) -> dict[str, RunFolder]:
    """Pretrain encoders so small that a step does not fill the cores.

    On a CPU each run has a process and its share of the cores: on two cores, three runs of the
    demo take two thirds of the time that they take one after the other. On a GPU, or a single
    core, they follow one another in this process. The weights are those of `pretrain` with as many
    threads.

    Args:
        configs: The runs by name; they differ in their folders.

    Returns:
        Their folders, by name.

    Raises:
        UserError: A run failed; the others are stopped, and continue when this is called again.
    """
    config = next(iter(configs.values()))
    if cores() == 1 or find_device(config.device).type == "cuda":
        return {name: pretrain(config) for name, config in configs.items()}
    threads = max(1, cores() // len(configs))
    shared = {
        name: replace(config, device="cpu", threads=threads) for name, config in configs.items()
    }
    steps = sum(map(_prepared, shared.values()))
    runs = {name: RunFolder(config.folder()) for name, config in shared.items()}
    with tempfile.TemporaryDirectory() as folder:
        processes = {
            name: _started(config, Path(folder) / str(at))
            for at, (name, config) in enumerate(shared.items())
        }
        try:
            _watch(processes, list(runs.values()), steps)
            failed = [name for name, process in processes.items() if process.poll()]
        finally:
            for process in processes.values():
                process.terminate()
                process.wait()
        for name in failed:
            log = Path(folder) / f"{list(processes).index(name)}.log"
            said = log.read_text().strip().splitlines() or ["it did not say why"]
            raise UserError(f"{name}, {runs[name].path}: {said[-1]}")
    return runs


def _prepared(config: PretrainConfig) -> int:
    """The steps of a run, of which all is checked, decoded and compiled that each would repeat."""
    config.check()
    canvases = open_canvas(config.data, config.size)
    pipeline = Pipeline(config.preset, config.size)
    pipeline.views(*canvases.batch([0]), pipeline.draw(1, torch.Generator()))
    return config.epochs * (len(canvases) // config.batch_size)


def _started(config: PretrainConfig, place: Path) -> "subprocess.Popen[bytes]":
    """A process that pretrains; what it says goes to `<place>.log`."""
    file = place.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(record(config), sort_keys=False))
    with place.with_suffix(".log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-c", CHILD, str(file)], stdout=log, stderr=log)


def _watch(
    processes: Mapping[str, "subprocess.Popen[bytes]"], runs: Sequence[RunFolder], steps: int
) -> None:
    """Show how far all are together, until all have ended or one has failed."""
    display = TrainingDisplay("pretrain", steps, 0, enabled=True)
    display.say(f"{', '.join(processes)}: {steps} steps, side by side")
    with display.running():
        while any(process.poll() is None for process in processes.values()):
            if any(process.poll() for process in processes.values()):
                return
            last = [(run.read_metrics() or [{"step": 0}])[-1] for run in runs]
            speed = sum(line.get("images_per_second", 0.0) for line in last)
            at = [line["step"] for line in last]
            each = "  ".join(f"{name} {step}" for name, step in zip(processes, at, strict=True))
            display.update(sum(at), each, f"{speed:.0f} images/s")
            time.sleep(POLL_S)
