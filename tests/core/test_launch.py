"""What launchers say in the environment: taken where it can be, else refused by its name."""

import os
from typing import Any

import pytest

from mast.core.errors import UserError
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


def fabric_in(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], **asked: int) -> Any:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return make_fabric("cpu", **asked)


@pytest.mark.parametrize(
    "environment",
    [
        {"SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"},
        {"SLURM_NTASKS": "nonsense"},
        SRUN | {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS_PER_NODE": "1"},
        {"MASTER_PORT": "nonsense", "MASTER_ADDR": "nowhere.invalid"},
    ],
)
def test_a_program_that_nothing_started_has_the_processes_that_are_asked_for(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fabric_in(monkeypatch, environment).world_size == 1
    two = make_fabric("cpu", 2).strategy
    assert (two.num_processes, two.num_nodes) == (2, 1)
    assert not two.cluster_environment.creates_processes_externally


def test_what_srun_started_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = SRUN | {"SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1"}
    fabric = fabric_in(monkeypatch, environment, devices=2)
    assert fabric.strategy.cluster_environment.creates_processes_externally
    assert fabric.strategy.cluster_environment.world_size() == 2


def test_another_number_than_srun_started_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="devices 1 x nodes 1 are not the 2 processes"):
        fabric_in(monkeypatch, SRUN | {"SLURM_NTASKS_PER_NODE": "2"})


def test_torchrun_says_how_many_processes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = fabric_in(monkeypatch, TORCHRUN, devices=2)
    assert (fabric.strategy.num_processes, fabric.strategy.num_nodes) == (1, 2)
