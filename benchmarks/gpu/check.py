"""Is what a GPU computes what the CPU computes, and does it train, resume and evaluate there?

    python benchmarks/gpu/check.py [--device cuda] [--tiny] [--parts views steps ...]

Parts run side by side, a process each, as most of their time is compilation on a core. What was
found, errors too, is written to `results/gpu-check-DEVICE.json`. The exit status is 1 where
something failed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # of `paper`
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from measure import RESULTS

import mast
from mast.augment import PRESETS, Pipeline, Views
from mast.config import PretrainConfig, build_method
from mast.core import loop
from mast.core.canvases import Canvases
from mast.core.checkpoint import write_json
from mast.core.launch import Device, Precision, make_fabric
from mast.core.optim import make_optimizer
from mast.core.run import provenance
from mast.data import open_canvas
from mast.recipes import configure
from paper import register

STEPS = 3
SMALL = {
    "encoder": {"name": "timm:resnet18", "options": {"channels": [16, 16, 32, 32]}},
    "size": 32,
    "objective": {"projector": {"hidden": 64, "dim": 48}},
}
TOLERANCE = 1e-4  # of a view's values, but for those within rounding of a threshold
RECIPES = ("mast_c5", "mast_c15", "mast_c5_distance", "mast5", "mast19", "mast5_handcrafted",
           "mast5_uncertainty_only", "vicreg")  # fmt: skip
# Of a run: whether parts are compiled, and whether they are replayed as CUDA graphs.
WAYS = (("plain", False, False), ("compiled", True, False), ("graphs", True, True))
COMPILED = ("mast_c5_small", "mast19_small", "mast_c5_distance_small", "vicreg5_small",
            "dino_small", "swav_small", "moco_v2_small")  # fmt: skip
QUICK: dict[str, dict[str, Any]] = {
    "knn": {},
    "linear_sgd": {"epochs": 1},
    "fewshot": {"episodes": 20, "repeats": 2},
    "rotation": {},
    "robust": {"operators": ["gaussian_blur", "rotate", "equalize"], "magnitudes": [1.0]},
    "retained": {"operators": ["gaussian_blur"]},
    "semi": {"shares": [0.2, 0.5], "epochs": 1},
    "finetune": {"changes": {"epochs": 1}},
}


@dataclass(frozen=True)
class Checks:
    """The parts.

    Args:
        device: What is held against the CPU.
        tiny: Whether to try the program itself, on a CPU.
    """

    device: Device
    tiny: bool

    def views(self) -> dict[str, Any]:
        """Every view of every preset, by the kernels of the device and by PyTorch's on the CPU."""
        found = {}
        shapes = ((32, 24, 8),) if self.tiny else ((72, 64, 64), (256, 224, 32))
        for side, size, count in shapes:
            pixels_BHWC = open_canvas(f"factors@train:{count}", side).batch(range(count)).values_T
            square_BHWC = pixels_BHWC.view(count, 48, 48, 3)
            sides = torch.linspace(20, 48, count).long().tolist()
            canvases = Canvases.cat(
                [Canvases.of(square_BHWC[at : at + 1, :, :wide]) for at, wide in enumerate(sides)]
            )
            for name, preset in PRESETS.items():
                pipeline = Pipeline(preset, size)
                reference = Pipeline(preset, size, compiled=False)
                records = pipeline.draw(count, torch.Generator().manual_seed(0))
                there = canvases.to(torch.device(self.device))
                drawn = pipeline.views(there, records).images
                expected = reference.views(canvases, records).images
                errors = torch.cat(
                    [(a.cpu() - b).abs().flatten() for a, b in zip(drawn, expected, strict=True)]
                )
                above = float((~(errors <= TOLERANCE)).float().mean())
                found[f"{name}, {side} to {size}"] = {"max": float(errors.max()), "above": above}
                assert above < 0.01, f"{name}: {above:.1%} of the values differ"
        return found

    def steps(self) -> dict[str, Any]:
        """The losses of a few steps: on the CPU, on the device, and there in mixed precision."""
        found = {}
        for recipe in RECIPES[:1] if self.tiny else RECIPES:
            config = configure(recipe, batch_size=16, **SMALL)
            losses = {
                "cpu": self._losses(config, "cpu", "float32"),
                "float32": self._losses(config, self.device, "float32"),
                "mixed": self._losses(config, self.device, "bfloat16"),
            }
            found[recipe] = losses
            for name, tolerance in (("float32", 0.01), ("mixed", 0.1)):
                pairs = zip(losses[name], losses["cpu"], strict=True)
                assert all(abs(a - b) <= tolerance * abs(b) for a, b in pairs), (recipe, losses)
        return found

    def _losses(self, config: PretrainConfig, device: Device, precision: Precision) -> list[float]:
        fabric = make_fabric(device, precision=precision)
        method = build_method(config)
        method.encoder.to(memory_format=torch.channels_last)
        groups = method.parameter_groups()
        optimizer = make_optimizer(groups, config.optimizer, config.batch_size, fabric.device)
        pipeline = Pipeline(config.preset, config.size)
        canvases = open_canvas(f"factors@train:{config.batch_size}", config.size)
        batch = canvases.batch(range(config.batch_size)).to(fabric.device)
        generator = torch.Generator().manual_seed(0)

        def views() -> Iterator[Views]:
            for _ in range(STEPS):
                records = pipeline.draw(config.batch_size, generator)
                yield pipeline.views(batch, records)

        training = loop.Training(method, optimizer, 1, STEPS, lambda progress: 1.0, log_every=1)
        losses = []
        for result in training.run(
            fabric, lambda epoch, start: views(), lambda module, batch, *_: module(batch, 0.0)
        ):
            method.after_step(0.0)
            assert result.metrics is not None
            losses.append(result.metrics["loss"])
        return losses

    def defaults(self, recipe: str) -> dict[str, Any]:
        """A run whose parts are compiled, and replayed as graphs, beside the same run without."""
        losses = {}
        for name, compiled, graphs in WAYS if self.device == "cuda" else WAYS[:1]:
            with tempfile.TemporaryDirectory() as folder:
                config = configure(
                    recipe,
                    data="factors@train:128",
                    out=Path(folder) / "run",
                    device=self.device,
                    epochs=2,
                    batch_size=32,
                    log_every=1,
                    score_every=2,
                    compile=compiled,
                    cuda_graphs=graphs,
                    **{key: SMALL[key] for key in ("encoder", "size")},
                )
                lines = mast.pretrain(config).read_metrics()
            losses[name] = [line["loss"] for line in lines if "loss" in line]
        for name, values in losses.items():
            pairs = zip(values, losses["plain"], strict=True)
            assert all(abs(a - b) <= 0.1 * abs(b) for a, b in pairs), (name, losses)
        skipped = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
        return {**losses, "graphs that were not replayed": skipped}

    def resume(self) -> dict[str, Any]:
        """A run that is cut off and continued has the weights of one that was not."""
        found = {}
        for optimizer in ("adamw", "lars"):
            with tempfile.TemporaryDirectory() as folder:
                whole, cut = (
                    configure(
                        "mast_c5_small",
                        data="factors@train:64",
                        out=Path(folder) / name,
                        device=self.device,
                        epochs=3,
                        batch_size=16,
                        optimizer={"name": optimizer},
                        **SMALL,
                    )
                    for name in ("whole", "cut")
                )
                mast.pretrain(whole)
                _cut_off(cut, step=5)
                mast.pretrain(cut)
                first, second = (
                    mast.load_encoder(config.out).state_dict() for config in (whole, cut)
                )
                differences = [float((first[k] - second[k]).abs().max()) for k in first]
                found[optimizer] = {"largest difference": max(differences)}
                assert max(differences) < 1e-3, (optimizer, max(differences))
        return found

    def waits(self) -> dict[str, Any]:
        """Lines for which the host waits in a training, as PyTorch sees them; few are expected."""
        if self.device != "cuda":
            return {"lines": None}
        config = configure(
            "mast19_small", data="factors@train:256", device="cuda", epochs=1, batch_size=32,
            log_every=100, score_every=99, **SMALL,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            config.out = Path(folder) / "run"
            mast.pretrain(config)
            torch.cuda.set_sync_debug_mode("default")
        lines = {f"{each.filename}:{each.lineno}" for each in seen if "synchroniz" in str(each)}
        root = f"{Path(mast.__file__).parents[1]}/"
        short = (line.partition("site-packages/")[2] or line.removeprefix(root) for line in lines)
        return {"lines": sorted(short)}

    def protocols(self) -> dict[str, Any]:
        """Quick protocols on features of the device, in both precisions."""
        found: dict[str, Any] = {}
        failed = []
        sets = mast.NamedSets(train="factors@train:256", test="factors@test:128")
        for precision in ("float32", "bfloat16"):
            for name in ("knn", "linear") if self.tiny else QUICK:
                try:
                    mast.evaluate(
                        "timm:resnet10t",
                        sets,
                        size=32,
                        protocols=[name],
                        device=self.device,
                        precision=precision,
                        settings={name: QUICK[name]} if QUICK[name] else None,
                    )
                    found[f"{name}, {precision}"] = "done"
                except Exception as error:  # the others are to be tried all the same
                    found[f"{name}, {precision}"] = f"{type(error).__name__}: {error}"
                    failed.append(name)
        assert not failed, found
        return found


class _CutOffError(BaseException):
    """Ends a training as a killed process would."""


def _cut_off(config: PretrainConfig, step: int) -> None:
    """Train to a step, save, and end."""
    save = loop.Training.save

    def saving(training: loop.Training) -> None:
        save(training)
        if training.step == step:
            raise _CutOffError

    config.checkpoint_minutes = 0
    with patch.object(loop.Training, "save", saving), suppress(_CutOffError):
        mast.pretrain(config)


PARTS: dict[str, Callable[[Checks], dict[str, Any]]] = {
    **{f"defaults-{recipe}": partial(Checks.defaults, recipe=recipe) for recipe in COMPILED},
    "steps": Checks.steps,
    "views": Checks.views,
    "resume": Checks.resume,
    "protocols": Checks.protocols,
    "waits": Checks.waits,
}
FOUND, ERROR = "found", "error"
SECONDS = 150  # of a part


def _apart(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """What a part found, or its error, from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:  # where evaluations of a name leave their results
        file = Path(folder, "part.json")
        script = [sys.executable, str(Path(__file__).resolve()), "--into", str(file)]
        arguments = ["--device", options.device, "--parts", name, *["--tiny"][: options.tiny]]
        try:
            status = subprocess.run(
                [*script, *arguments],
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "2"},
                check=False,
                timeout=SECONDS,
            ).returncode
        except subprocess.TimeoutExpired:
            return {ERROR: f"not done in {SECONDS} seconds"}
        if not file.is_file():
            return {ERROR: f"exit status {status}"}
        found: dict[str, Any] = json.loads(file.read_text())
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    register()
    if options.into:
        (name,) = options.parts
        try:
            part: dict[str, Any] = {FOUND: PARTS[name](Checks(options.device, options.tiny))}
        except Exception:  # the others are to be tried all the same
            part = {ERROR: traceback.format_exc(limit=-4)}
        print(f"{name}: {part}", flush=True)
        write_json(options.into, part)
        return 0
    with ThreadPoolExecutor(2 if options.tiny else len(PARTS)) as pool:
        parts = list(pool.map(partial(_apart, options=options), options.parts))
    result = dict(zip(options.parts, parts, strict=True))
    errors = {name: part[ERROR] for name, part in result.items() if ERROR in part}
    print(f"{len(errors)} of {len(result)} parts failed: {', '.join(errors)}")
    if not options.tiny:
        written = {"parts": result, "provenance": provenance()}
        write_json(RESULTS / f"gpu-check-{options.device}.json", written)
    return int(bool(errors))


if __name__ == "__main__":
    sys.exit(main())
