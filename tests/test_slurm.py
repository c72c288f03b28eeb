"""As SLURM starts processes, on two nodes: they find each other, and go on after a pre-emption."""

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny import configure
from torch.optim.optimizer import register_optimizer_step_post_hook

import mast
from mast.cli import main
from mast.core.run import RunFolder

pytestmark = pytest.mark.slow

UPDATES = 4  # until the scheduler wants the machines back
REQUEUE = 128 + signal.SIGUSR1 if hasattr(signal, "SIGUSR1") else 0


def task(rank: int, config: str, folder: str, ports: list[int]) -> None:
    """A task of `srun`: a run as it is, one that is pre-empted, and this one again."""
    torch.set_num_threads(1)
    os.environ |= {
        "SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "mast", "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "1", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "127.0.0.1",
        "SLURM_NODELIST": "127.0.0.1", "SLURM_PROCID": str(rank), "SLURM_NODEID": str(rank),
        "SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "2", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    updates = 0

    def preempt(*_: object) -> None:
        nonlocal updates
        updates += 1
        if updates == UPDATES:
            os.kill(os.getpid(), signal.SIGUSR1)

    codes = []
    for port, out, preempted in zip(
        ports, ("whole", "cut", "cut"), (False, True, False), strict=True
    ):
        os.environ["MASTER_PORT"] = str(port)
        hook = register_optimizer_step_post_hook(preempt) if preempted else None
        words = ["pretrain", "--config", config, "--out", os.path.join(folder, out)]
        codes.append(main([*words, "--device", "cpu"]))
        if hook is not None:
            hook.remove()
        torch.distributed.destroy_process_group()
        os.environ.pop("MASTER_ADDR", None)
    assert codes == [0, REQUEUE, 0], codes


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGUSR1")
def test_a_job_of_two_nodes_goes_on_after_a_preemption(
    photos: Path, tmp_path: Path, in_two_processes: Callable[..., None]
) -> None:
    config = configure(photos, tmp_path / "whole", batch_size=8, epochs=2, log_every=1)
    file = tmp_path / "config.yaml"
    file.write_text(mast.show_config(config))
    in_two_processes(task, str(file), str(tmp_path), [free_port() for _ in range(3)])
    whole, cut = (RunFolder(tmp_path / name) for name in ("whole", "cut"))
    assert cut.encoder.read_bytes() == whole.encoder.read_bytes()
    steps = [line["step"] for line in cut.read_metrics() if "loss" in line]
    assert steps == list(range(1, 13))
