"""Copies between host and device without synchronization."""

from collections.abc import Iterable

import torch
from torch import Tensor


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """Pin a tensor's memory if it goes to a GPU."""
    wanted = device.type == "cuda" and tensor.device.type == "cpu"
    return tensor.pin_memory() if wanted else tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to a device; the host does not wait for a GPU."""
    return pinned(tensor, device).to(device, non_blocking=device.type == "cuda")


def numbers(scalars: Iterable[Tensor]) -> list[float]:
    """Read scalar tensors of one device in one copy."""
    doubles = [scalar.detach().double().reshape(()) for scalar in scalars]
    return torch.stack(doubles).cpu().tolist() if doubles else []
