"""Processes are those that a launcher started, by its environment."""

import os

import pytest

from mast.core.launch import make_fabric

TORCHRUN = {
    "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0",
    "TORCHELASTIC_RUN_ID": "x",
}  # fmt: skip
SRUN = {
    "SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("SLURM_", "MASTER_")) or name.endswith(("RANK", "WORLD_SIZE")):
            monkeypatch.delenv(name)


def processes(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> tuple[int, int]:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    strategy = make_fabric("cpu").strategy
    return getattr(strategy, "num_processes", 1), getattr(strategy, "num_nodes", 1)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (SRUN | {"SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1"}, (2, 1)),
        (SRUN | {"SLURM_NTASKS_PER_NODE": "1", "SLURM_NNODES": "2"}, (1, 2)),
        (TORCHRUN, (1, 2)),
        (
            {"SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"},
            (1, 1),
        ),
        ({"SLURM_NTASKS": "nonsense"}, (1, 1)),
        (
            SRUN | {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS_PER_NODE": "1"},
            (1, 1),
        ),
        ({"MASTER_PORT": "nonsense", "MASTER_ADDR": "nowhere.invalid"}, (1, 1)),
    ],
)
def test_what_srun_or_torchrun_started_is_taken_over_and_all_else_is_one_process(
    environment: dict[str, str], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert processes(monkeypatch, environment) == expected
