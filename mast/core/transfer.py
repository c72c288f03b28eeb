"""Copies between the host and a device, none for which a GPU waits."""

from collections.abc import Iterable

import torch
from torch import Tensor


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    """In memory from which a GPU copies by itself, where one is to have it; else as it is."""
    wanted = device.type == "cuda" and tensor.device.type == "cpu"
    return tensor.pin_memory() if wanted else tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """On a device; the host does not wait for a copy to a GPU."""
    return pinned(tensor, device).to(device, non_blocking=device.type == "cuda")


def numbers(scalars: Iterable[Tensor]) -> list[float]:
    """The numbers of tensors of one device that hold one each, in one copy."""
    doubles = [scalar.detach().double().reshape(()) for scalar in scalars]
    return torch.stack(doubles).cpu().tolist() if doubles else []
