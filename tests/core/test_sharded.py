"""An optimizer whose state is divided among two processes moves weights as the plain one, and each
takes over the other's state. Whole runs are in `test_slurm.py`."""

from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import torch.distributed as dist
from torch import nn

import mast
from mast.core.errors import UserError
from mast.core.optim import (
    OF_ALL_GRADIENTS,
    OptimizerConfig,
    OptimizerName,
    is_sharded,
    load_state,
    make_optimizer,
    whole_state,
)

pytestmark = pytest.mark.slow

SIZES = (7, 16, 16, 5, 3, 1)
STEPS = 3
FROZEN = 1  # of its layers


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(SIZES)))


def optimizer_of(network: nn.Module, name: OptimizerName, sharded: bool) -> torch.optim.Optimizer:
    kinds: dict[str, list[nn.Parameter]] = {"weights": [], "vectors": [], "gates": []}
    for parameter in network.parameters():
        kinds["vectors" if parameter.ndim < 2 else "weights"].append(parameter)
    kinds["gates"].append(kinds["vectors"].pop())  # fewer than there are processes
    groups = [{"name": kind, "params": own} for kind, own in kinds.items()]
    return make_optimizer(groups, OptimizerConfig(name, weight_decay=0.1), 256, sharded=sharded)


def train(network: nn.Sequential, optimizer: torch.optim.Optimizer, frozen: bool = False) -> None:
    """A few steps; what is frozen has no gradient, as `Training` leaves it."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        network(torch.rand(8, SIZES[0], generator=generator)).square().mean().backward()
        if frozen:
            network[FROZEN].zero_grad()
        optimizer.step()


def assert_same(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, dict):
            assert_same(value, other[key])
        elif isinstance(value, torch.Tensor):
            assert torch.equal(value, other[key]), key
        else:
            assert value == other[key], key


def compare(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for name in get_args(OptimizerName):
        if name in OF_ALL_GRADIENTS:
            continue
        plain, own = network(), network()
        whole, half = optimizer_of(plain, name, False), optimizer_of(own, name, True)
        assert is_sharded(half)
        assert not is_sharded(whole)
        train(plain, whole, frozen=True)
        train(own, half, frozen=True)
        assert_same(network()[FROZEN].state_dict(), own[FROZEN].state_dict())
        kept = sum(p.numel() for group in half.optim.param_groups for p in group["params"])
        assert kept < 0.6 * sum(p.numel() for p in own.parameters())
        moved = {p for p in own.parameters() if p not in set(own[FROZEN].parameters())}
        shared = {p for group in half.optim.param_groups for p in group["params"]}
        assert {p for p in half.optim.state if half.optim.state[p]} == shared & moved
        assert_same(plain.state_dict(), own.state_dict())
        state, gathered = whole_state(whole), whole_state(half)
        if rank:
            assert gathered == {}
        else:
            assert_same(state, gathered)
        # ------------------------------------------------- each takes over the state of the other
        states = [gathered]
        dist.broadcast_object_list(states)
        before = deepcopy(states[0])
        there, back = optimizer_of(own, name, True), optimizer_of(plain, name, False)
        load_state(there, states[0])
        assert_same(states[0], before)
        load_state(back, before)
        assert is_sharded(there)
        assert not there.state  # but for what its own optimizer has
        train(own, there)
        train(plain, back)
        assert_same(plain.state_dict(), own.state_dict())
        other = optimizer_of(nn.Sequential(network(), network()), name, True)
        with pytest.raises(ValueError, match="of other parameters"):
            load_state(other, states[0])
    dist.destroy_process_group()


def test_it_moves_weights_as_the_plain_one(
    tmp_path: Path, in_two_processes: Callable[..., None]
) -> None:
    in_two_processes(compare, str(tmp_path))


def test_what_needs_all_gradients_is_refused() -> None:
    with pytest.raises(UserError, match=r"shard_optimizer divides .* optimizer\.name lamb"):
        mast.configure("mae", optimizer={"name": "lamb"}, shard_optimizer=True)
