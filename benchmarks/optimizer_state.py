"""A large encoder in two processes, with the optimizer's state in each, and divided among them.

    python benchmarks/optimizer_state.py [--encoder timm:vit_large_patch16_224]

torchrun starts two processes on this machine, which train a few steps on a few small images and
save after each. Measured are the memory of each process between steps and at most, how long a
checkpoint takes and its bytes; encoder and checkpoint of the two ways are compared, byte for byte.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS

import mast
from mast.core.checkpoint import load_checkpoint, write_json
from mast.core.loop import Training
from mast.core.run import RunFolder, provenance
from mast.recipes import configure

PROCESSES, STEPS = 2, 3
WAYS = {"plain": False, "sharded": True}


def memory(what: str) -> float:
    """GB of this process: "VmRSS" now, or "VmHWM" at most."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1e6


def work(out: Path, encoder: str, sharded: bool) -> None:
    """One of the processes."""
    save, saves, between = Training.save, [], []

    def saving(training: Training) -> None:
        between.append(memory("VmRSS"))
        started = time.perf_counter()
        save(training)
        saves.append(time.perf_counter() - started)

    Training.save = saving  # type: ignore[method-assign]
    config = configure(
        "vicreg5_small",
        data=f"factors@train:{2 * PROCESSES * STEPS}",
        out=out,
        size=64,
        batch_size=2 * PROCESSES,
        epochs=1,
        score_every=9,
        log_every=1,
        checkpoint_minutes=0.0,
        device="cpu",
        precision="float32",
        devices=PROCESSES,
        shard_optimizer=sharded,
        encoder={"name": encoder, "options": {"dynamic_img_size": True}},
        optimizer={"name": "adamw", "lr": 1e-3},
    )
    mast.pretrain(config)
    rank = os.environ["RANK"]
    found = {"between": between[-1], "most": memory("VmHWM"), "saves": saves}
    write_json(out.with_name(f"{out.name}-{rank}.json"), found)


def measured(out: Path, encoder: str, sharded: bool) -> dict[str, Any]:
    """What both processes took."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(PROCESSES)]
    command += ["--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command += [__file__, "--encoder", encoder, "--out", str(out)] + ["--sharded"] * sharded
    subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
    files = [out.with_name(f"{out.name}-{rank}.json") for rank in range(PROCESSES)]
    ranks = [json.loads(file.read_text()) for file in files]
    return {
        "between": [rank["between"] for rank in ranks],
        "most": [rank["most"] for rank in ranks],
        "save": min(ranks[0]["saves"]),
        "bytes": RunFolder(out).last.stat().st_size,
    }


def same(one: Any, other: Any) -> bool:
    """Whether two states have the same numbers."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="timm:vit_large_patch16_224")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sharded", action="store_true")
    options = parser.parse_args()
    if options.out is not None:
        work(options.out, options.encoder, options.sharded)
        return
    with tempfile.TemporaryDirectory() as place:
        runs = {name: RunFolder(Path(place) / name) for name in WAYS}
        ways = {
            name: measured(runs[name].path, options.encoder, sharded)
            for name, sharded in WAYS.items()
        }
        encoders = {run.encoder.read_bytes() for run in runs.values()}
        states = [load_checkpoint(run.last) for run in runs.values()]
        equal = {
            "encoder": len(encoders) == 1,
            "module": same(states[0]["module"], states[1]["module"]),
            "optimizer": same(states[0]["optimizer"], states[1]["optimizer"]),
        }
        parameters = sum(tensor.numel() for tensor in states[0]["module"].values())
    print(ways, equal)
    write_json(
        RESULTS / "optimizer-state.json",
        {"encoder": options.encoder, "parameters": parameters, "processes": PROCESSES,
         "ways": ways, "same": equal, "provenance": provenance()},
    )  # fmt: skip
    assert all(equal.values()), equal


if __name__ == "__main__":
    main()
