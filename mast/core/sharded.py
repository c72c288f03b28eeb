"""An optimizer whose state is divided among the processes."""

from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.optim import ZeroRedundancyOptimizer


@final
class ShardedOptimizer(ZeroRedundancyOptimizer):
    """Each process keeps the state of a share of the parameters, steps them, and sends them on.

    A parameter belongs to one process as a whole, so that each moves as without it; norms over all
    parameters are not to be had. The whole state is that of the plain optimizer `kind`, and either
    can take over from the other. It is gathered one tensor at a time: PyTorch's own way needs
    several times the memory (docs/log.md).

    Reference:
        ZeRO, stage 1 (Rajbhandari et al., 2020), by PyTorch's `ZeroRedundancyOptimizer`.
    """

    @property
    def _number_of(self) -> dict[Tensor, int]:
        """Of each parameter, as the plain optimizer numbers them."""
        groups = self.param_groups
        return {own: at for at, own in enumerate(p for group in groups for p in group["params"])}

    def whole_state(self) -> dict[str, Any]:
        """The state of all parameters, on the CPU of the first process; {} on the others.

        All processes call this. Tensors are broadcast, one at a time: sending them to the first
        process alone would have NCCL open a communicator with buffers for each of the others.
        """
        number_of = self._number_of
        own = {number_of[p]: self.optim.state[p] for p in number_of if p in self.optim.state}
        small = {
            number: {
                name: value.cpu() if isinstance(value, Tensor) else value
                for name, value in state.items()
                if not _is_large(value)
            }
            for number, state in own.items()
        }
        large = [(number, name) for number, state in own.items() for name in state
                 if _is_large(state[name])]  # fmt: skip
        found: list[Any] = [None] * self.world_size
        dist.all_gather_object(found, (small, large))
        parameters = list(number_of)
        whole: dict[int, dict[str, Any]] = {}
        for source, (theirs, following) in enumerate(found):
            whole |= theirs
            for number, name in following:
                parameter = parameters[number]
                mine = own[number][name] if source == self.rank else None
                shape, dtype, device = parameter.shape, parameter.dtype, parameter.device
                sent = torch.empty(shape, dtype=dtype, device=device) if mine is None else mine
                dist.broadcast(sent := sent.contiguous(), source)
                if self.rank == 0:  # in the memory format of the parameter
                    received = torch.empty_like(parameter, device="cpu", requires_grad=False)
                    whole[number][name] = mine.cpu() if mine is not None else received.copy_(sent)
        if self.rank > 0:
            return {}
        state = torch.optim.Optimizer.state_dict(self)
        return {**state, "state": dict(sorted(whole.items()))}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over this process's share of a whole state."""
        groups, number_of = state_dict["param_groups"], self._number_of
        counts = [len(group["params"]) for group in self.param_groups]
        if [len(group["params"]) for group in groups] != counts:
            raise ValueError("the state is of other parameters")
        state: dict[int, Any] = {}
        packed, first = [], 0
        for group, own in zip(groups, self.optim.param_groups, strict=True):
            numbers = range(first, first + len(own["params"]))
            state |= {
                number: state_dict["state"][number_of[parameter]]
                for number, parameter in zip(numbers, own["params"], strict=True)
                if number_of[parameter] in state_dict["state"]
            }
            packed.append({**group, "params": list(numbers)})
            first += len(numbers)
        self.optim.load_state_dict({**state_dict, "state": state, "param_groups": packed})
        for mine, theirs in zip(self.param_groups, self.optim.param_groups, strict=True):
            mine |= {name: value for name, value in theirs.items() if name != "params"}


def _is_large(value: Any) -> bool:
    """Whether it has a number for each of the parameter's."""
    return isinstance(value, Tensor) and value.ndim > 0
