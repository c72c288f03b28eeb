"""Between the host and a device: as few copies as there can be, and none for which a GPU waits."""

from collections.abc import Iterable, Mapping
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

_ALIGNED = 16  # bytes: where a part may begin, whatever its type


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


class PackedLayout(NamedTuple):
    """Where the tensors of `packed` are: names, types, shapes, and their ends in bytes."""

    names: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    shapes: tuple[torch.Size, ...]
    ends: tuple[int, ...]


def packed(tensors: Mapping[str, Tensor]) -> tuple[Tensor, PackedLayout]:
    """Tensors of the CPU as one row of bytes for one copy, and how `unpacked` finds them."""
    layout = PackedLayout(
        tuple(tensors),
        tuple(tensor.dtype for tensor in tensors.values()),
        tuple(tensor.shape for tensor in tensors.values()),
        tuple(accumulate(-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in tensors.values())),
    )
    row_N = torch.zeros(layout.ends[-1] if tensors else 0, dtype=torch.uint8)
    for start, tensor in zip((0, *layout.ends), tensors.values(), strict=False):
        if tensor.numel():  # one without elements may have a stride that no bytes have
            own_N = tensor.contiguous().reshape(-1).view(torch.uint8)
            row_N[start : start + len(own_N)] = own_N
    return row_N, layout


def unpacked(row_N: Tensor, layout: PackedLayout) -> dict[str, Tensor]:
    """The tensors of `packed`, as views of its bytes, where these are now."""
    return {
        name: row_N[start : start + shape.numel() * dtype.itemsize].view(dtype).view(shape)
        for name, dtype, shape, (start, _) in zip(
            layout.names, layout.dtypes, layout.shapes, pairwise((0, *layout.ends)), strict=True
        )
    }
