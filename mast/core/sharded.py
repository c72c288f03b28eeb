"""An optimizer whose state is divided among the processes."""

from collections.abc import Callable
from typing import Any, cast, final

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

    def __init__(
        self,
        groups: list[dict[str, Any]],
        kind: Callable[..., torch.optim.Optimizer],
        **options: Any,
    ) -> None:
        super().__init__(groups, cast(type[torch.optim.Optimizer], kind), **options)

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
        small = {number: {name: _on_cpu(value) for name, value in state.items()
                          if not _is_large(value)} for number, state in own.items()}  # fmt: skip
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
                sent = _empty_like(parameter) if mine is None else mine.contiguous()
                dist.broadcast(sent, source)
                if self.rank == 0:
                    whole[number][name] = _kept(sent, parameter) if mine is None else mine.cpu()
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


def _empty_like(parameter: Tensor) -> Tensor:
    """A contiguous tensor of the same shape, type and device."""
    return torch.empty(parameter.shape, dtype=parameter.dtype, device=parameter.device)


def _kept(sent: Tensor, parameter: Tensor) -> Tensor:
    """On the CPU, in the memory format of the parameter."""
    kept = torch.empty_like(parameter, device="cpu", requires_grad=False)
    return kept.copy_(sent)


def _on_cpu(value: Any) -> Any:
    """What is not bound to a GPU of one process."""
    return value.cpu() if isinstance(value, Tensor) else value


def _is_large(value: Any) -> bool:
    """Whether it has a number for each of the parameter's."""
    return isinstance(value, Tensor) and value.ndim > 0
