"""Batch normalisation over the batches of all processes, on CPU as on CUDA."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mast.core.collectives import global_sum, processes
from mast.core.errors import UserError


class SyncBatchNorm(_BatchNorm):
    """BatchNorm whose training statistics are those of the global batch.

    PyTorch's own `nn.SyncBatchNorm` has no CPU kernel; this one needs only differentiable
    sums, so that two gloo processes equal one process, loss and gradients. Processes may bring
    different numbers of samples, as detectors do, whose images differ in size.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least (B, C), got {tuple(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (B, C, ...) over everything but C, and over processes."""
        if not (self.training and processes() > 1):
            return super().forward(input)
        self._check_input_dim(input)
        axes = [axis for axis in range(input.ndim) if axis != 1]
        shape = [1, -1] + [1] * (input.ndim - 2)
        values = input.float()
        local = values.new_tensor([values.numel() / values.shape[1]])
        sums = global_sum(torch.cat([values.sum(axes), local]))
        mean_C, count = sums[:-1] / sums[-1], sums[-1].detach()
        centred = values - mean_C.view(shape)
        variance_C = global_sum(centred.square().sum(axes)) / count
        self._track(mean_C.detach(), variance_C.detach() * count / (count - 1))
        output = centred * (variance_C + self.eps).rsqrt().view(shape)
        if self.affine:
            output = output * self.weight.view(shape) + self.bias.view(shape)
        return output.to(input.dtype)

    @torch.no_grad()
    def _track(self, mean_C: Tensor, variance_C: Tensor) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        momentum = (
            self.momentum if self.momentum is not None else 1.0 / self.num_batches_tracked.item()
        )
        self.running_mean.lerp_(mean_C.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(variance_C.to(self.running_var.dtype), momentum)


def synchronise_batchnorm(module: nn.Module, device: torch.device) -> nn.Module:
    """Replace every BatchNorm below `module`, in place, by one that sees the global batch.

    Parameters, buffers and names do not change. On CUDA, the kernels of PyTorch and timm are used.
    """
    if device.type == "cuda":
        from timm.layers.norm_act import convert_sync_batchnorm

        converted: nn.Module = convert_sync_batchnorm(module)
        return converted
    known = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, SyncBatchNorm)
    norms = [child for child in module.modules() if isinstance(child, _BatchNorm)]
    for norm in norms:
        if type(norm) not in known:
            raise UserError(
                f"{type(norm).__name__} cannot be synchronised between CPU processes; "
                "train this encoder in one process, or on CUDA"
            )
    for norm in norms:
        norm.__class__ = SyncBatchNorm  # the same state, another forward
    return module
