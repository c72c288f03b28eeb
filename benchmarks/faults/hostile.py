"""Options of an encoder, and values of the Python API, where tensors and names belong."""

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import mast
from faults.case import Case
from faults.commands import TINY
from faults.lies import NAMES, OPTIONS
from faults.process import run
from faults.world import World

SHAPE = (2, 3, 16, 16)
VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a text": lambda: "photos",
    "a number": lambda: 5,
    "nothing": list,
    "fields": dict,
    "an object": object,
    "an array": lambda: np.zeros(SHAPE, np.float32),
    "objects": lambda: np.array([None, "x"], object),
    "no image": lambda: torch.zeros(0, 3, 16, 16),
    "an image without pixels": lambda: torch.zeros(2, 3, 0, 16),
    "one pixel": lambda: torch.zeros(2, 3, 1, 1),
    "an image alone": lambda: torch.zeros(3, 16, 16),
    "a scalar": lambda: torch.tensor(0.5),
    "one channel": lambda: torch.zeros(2, 1, 16, 16),
    "channels last": lambda: torch.zeros(2, 16, 16, 3),
    "whole numbers": lambda: torch.zeros(SHAPE, dtype=torch.int64),
    "truths": lambda: torch.zeros(SHAPE, dtype=torch.bool),
    "complex": lambda: torch.zeros(SHAPE, dtype=torch.complex64),
    "float64": lambda: torch.zeros(SHAPE, dtype=torch.float64),
    "float16": lambda: torch.zeros(SHAPE, dtype=torch.float16),
    "not a number": lambda: torch.full(SHAPE, torch.nan),
    "infinite": lambda: torch.full(SHAPE, torch.inf),
    "up to 255": lambda: torch.full(SHAPE, 255.0),
    "negative": lambda: torch.full(SHAPE, -3.0),
    "sparse": lambda: torch.zeros(SHAPE).to_sparse(),
    "without numbers": lambda: torch.empty(SHAPE, device="meta"),
    "repeated": lambda: torch.zeros(1).expand(SHAPE),
    "with a gradient": lambda: torch.zeros(SHAPE, requires_grad=True),
    "a list": lambda: [torch.zeros(3, 16, 16)] * 2,
}
FITTED = "fitted.safetensors"
CALLS: dict[str, Callable[[Any], Any]] = {
    "load_encoder('run')": lambda value: mast.load_encoder("run").forward(value),
    "load_embedding('run')": lambda value: mast.load_embedding("run")(value, ignore="color"),
    f"load_classifier({FITTED!r})": lambda value: mast.load_classifier(FITTED).forward(value),
    "ViewMaker('mast5', 16)": lambda value: mast.ViewMaker("mast5", 16)(value)[0],
    "open_images": lambda value: mast.open_images(value, 16),
    "configure": lambda value: mast.configure("mast_c5_small", optimizer={"lr": value}),
    "configure's encoder": lambda value: mast.configure("mast_c5_small", encoder=value),
}


def attack(world: World, draw: random.Random) -> Case:
    """Give an option or a call what it does not take: numbers come of it, or one line."""
    folder = world.fresh()
    if draw.random() < 0.4:
        given = [f"encoder.options={json.dumps(draw.choice(OPTIONS))}"]
        if draw.random() < 0.5:
            given += ["--encoder", str(draw.choice(("resnet18", *NAMES)))]
        verb = draw.choice((["pretrain", "--out", "new"], ["show", "config"]))
        words, said = [*verb, *TINY.split(), *given], " ".join(given)
        outcome = run(words, folder)
    else:
        name, said = draw.choice(sorted(CALLS)), draw.choice(sorted(VALUES))
        words = [f"mast.{name}"]
        outcome = run((), folder, call=lambda: numbers(CALLS[name](VALUES[said]())))
    verdict = {0: "result", 2: "refused"}.get(outcome.code or 0, "wrong")
    if outcome.printed == "not finite\n":
        verdict = "wrong"
    return Case.of("hostile", words, said, outcome.fault or verdict, outcome)


def numbers(given: Any) -> str:
    """Of what type something is, and whether a tensor has numbers that are none."""
    if isinstance(given, Tensor) and not given.isfinite().all():
        return "not finite"
    return type(given).__name__
