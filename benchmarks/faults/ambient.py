"""What is set around a command or a call: its answer is the same, or it refuses in one line."""

import hashlib
import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import mast
from faults.case import Case
from faults.commands import COMMANDS
from faults.process import run
from faults.world import World

TRIED = ("embed", "evaluate", "probe", "fit", "predict", "outliers", "neighbours", "duplicates",
         "views", "pretrain", "continue", "analyze", "export", "compare", "report",
         "shards")  # fmt: skip


def _seed() -> None:
    random.seed(9)
    np.random.seed(9)  # noqa: NPY002  # what others may have seeded
    torch.manual_seed(9)


_ENTERED = ExitStack()  # until a process ends
STATES: dict[str, Callable[[], Any]] = {
    "autocast": lambda: _ENTERED.enter_context(torch.autocast("cpu", torch.bfloat16)),
    "float64": lambda: torch.set_default_dtype(torch.float64),
    "another device": lambda: torch.set_default_device("meta"),
    "no_grad": lambda: _ENTERED.enter_context(torch.no_grad()),
    "inference_mode": lambda: _ENTERED.enter_context(torch.inference_mode()),
    "other seeds": _seed,
    "detected anomalies": lambda: torch.autograd.set_detect_anomaly(True),
}
ENVIRONMENT = (
    {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}, {"XDG_CACHE_HOME": "/dev/null/x"},
    {"HOME": "/nowhere"}, {"HOME": ""}, {"COLUMNS": "1"}, {"COLUMNS": "x"}, {"COLUMNS": "0"},
    {"LINES": "-1"}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}, {"TERM": "x\x1b[31m"},
    {"LC_ALL": "C"}, {"LC_ALL": "nowhere"}, {"LANG": "tr_TR.UTF-8"}, {"TZ": "x/y"}, {"PATH": ""},
    {"MAST_DEBUG": ""}, {"OMP_NUM_THREADS": "x"}, {"OMP_NUM_THREADS": "-1"}, {"TMPDIR": "/nowhere"},
    {"CUDA_VISIBLE_DEVICES": "x"}, {"WORLD_SIZE": "x"}, {"WORLD_SIZE": "2"}, {"RANK": "7"},
    {"LOCAL_RANK": "x"}, {"WORLD_SIZE": "-1", "RANK": "0"}, {"SLURM_NTASKS": "x"},
    {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "2"}, {"MASTER_PORT": "x"}, {"GIT_DIR": "/dev/null"},
    {"TORCH_HOME": "/dev/null"}, {"HF_HOME": "/dev/null"}, {"MPLCONFIGDIR": "/dev/null"},
)  # fmt: skip


def attack(world: World, draw: random.Random) -> Case:
    """Set something, and run a command or make a call."""
    state = draw.choice(sorted(STATES))
    if draw.random() < 0.25:
        name = draw.choice(sorted(MADE))
        call = partial(given, name)
        expected = world.once(name, lambda folder: run((), folder, call=call).printed)
        words: tuple[str, ...] = (f"mast.{name}",)
        outcome = run((), world.fresh(), STATES[state], call)
        right = outcome.printed == expected
    else:
        name = draw.choice(TRIED)
        words, prepare = COMMANDS[name].words, STATES[state]
        if draw.random() < 0.5:
            variables = draw.choice(ENVIRONMENT)
            state, prepare = f"{variables}", partial(os.environ.update, variables)
        folder = world.fresh()
        COMMANDS[name].forget(folder)
        outcome = run(words, folder, prepare)
        right = world.is_right(name, outcome)
    verdict = "refused" if outcome.code == 2 else "result" if right else "wrong"
    return Case.of("ambient", words, state, outcome.fault or verdict, outcome)


def _encoded(module: torch.nn.Module) -> Callable[[], Tensor]:
    """What a network gives, where nothing is set any more."""
    values = torch.arange(4 * 3 * 16 * 16, dtype=torch.float32, device="cpu")
    return lambda: module((values / len(values)).view(4, 3, 16, 16))


def _views() -> Callable[[], Any]:
    pixels = np.arange(5 * 20 * 24 * 3).astype(np.uint8).reshape(5, 20, 24, 3)
    views = mast.ViewMaker("mast5", 16, seed=3)(list(pixels))
    return lambda: views


def _opened() -> Callable[[], Tensor]:
    images = mast.open_images(["photos/test/dusk/0.png", "photos/test/moss/1.png"], 16)
    return lambda: images


# Made in the state.
MADE: dict[str, Callable[[], Callable[[], Any]]] = {
    "load_encoder": lambda: _encoded(mast.load_encoder("run")),
    "load_embedding": lambda: _encoded(mast.load_embedding("run")),
    "load_classifier": lambda: _encoded(mast.load_classifier("fitted.safetensors")),
    "ViewMaker": _views,
    "open_images": _opened,
}


def given(name: str) -> str:
    """What is made in the state that there is, as a digest of what it gives outside of it."""
    made = MADE[name]()
    torch.set_default_dtype(torch.float32)
    torch.set_default_device("cpu")
    with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
        answer = made()
        state = hashlib.sha256()
        for tensor in [answer] if isinstance(answer, Tensor) else answer:
            state.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            state.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return state.hexdigest()
