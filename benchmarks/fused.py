"""The kernels for a GPU, without one: launches, bytes, and what a compiler makes of them.

    python benchmarks/fused.py [--presets mast5 mast15 mast19] [--images 512]

For every preset, of a step's views at 224 pixels from canvases of 256: what PyTorch's kernels and
Triton's would launch, copy, wait for, and read and write in the memory of the GPU (a kernel that
reads a pixel several times finds it in a cache after the first), counted on a GPU that is not
there. Then the registers, the stack and the shared memory of every kernel, from the machine code
for two generations of GPUs.
"""

import argparse
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.pop("TRITON_INTERPRET", None)  # the interpreter cannot compile

import fake_gpu
import torch
import triton
from fake_gpu import GPU, FakeGPU, on_gpu
from measure import RESULTS
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from mast.augment import PRESETS, Pipeline
from mast.augment.fused import chain
from mast.augment.fused.resample import COLUMNS
from mast.core.canvases import Canvases
from mast.core.checkpoint import write_json
from mast.core.run import provenance

SIDE, SIZE = 256, 224
CAPABILITIES = (80, 90)  # A100; H100 and H200
SAMPLED = 32  # images whose rows are looked at, for the rest of the batch too
TYPES = {torch.uint8: "*u8", torch.int32: "*i32", torch.float32: "*fp32", torch.bfloat16: "*bf16"}
BY_KERNEL = [name for each in chain.PASSES for name in each.operators] + ["cut_out"]
# Images of float32 that a kernel reads and writes of each sample that it treats.
IMAGES = {
    "tone": 2.0,
    "count_levels": 1.0,
    "look_up": 2.0,
    "blur_along": 2.0,
    "sharpen": 2.0,
    "correlate": 2.0,
    "blend_edges": 2.0,
    "grain": 2.0,
    "sum_colors": 1.0,
    "finish": 1.5,  # it writes bfloat16
    "warp": 1.0,
}


def recorded(
    preset: str, count: int, size: int = SIZE, side: int = SIDE
) -> list[tuple[Any, dict[str, Any]]]:
    """The launches of a step, with their arguments on the CPU; nothing is run."""
    launches: list[tuple[Any, dict[str, Any]]] = []

    def launch(kernel: Any, grid: tuple[int], arguments: dict[str, Any]) -> None:
        launches.append((kernel, arguments))

    pipeline = Pipeline(PRESETS[preset], size)
    on_cpu = patch("mast.augment.pipeline.is_fused", lambda device: True)
    with patch.object(chain, "launch", launch), on_cpu:
        canvases = Canvases.of(torch.zeros(count, side, side, 3, dtype=torch.uint8))
        memory = pipeline.buffer(count, canvases.device, torch.bfloat16)
        records = pipeline.draw(count, torch.Generator().manual_seed(0))
        pipeline.views(canvases, records, memory)
    return launches


def traffic(kernel: Any, arguments: dict[str, Any], size: int, side: int) -> float:
    """Bytes that a launch reads and writes."""
    name, table_BN = kernel.__name__, arguments.get("table")
    assert table_BN is not None
    if name == "canvas_means":  # only of those beyond which a view reaches
        share = float(table_BN[:, COLUMNS - 1].float().mean())
        return float(arguments["values_T"].nbytes) * share
    of = arguments["of"]
    columns = [at for operator in BY_KERNEL if (at := getattr(of, operator)) >= 0]
    if name == "sum_colors":
        columns = [of.cut_out]
    treated = len(table_BN)
    if name not in ("warp", "finish"):
        treated = int((table_BN[:, columns] >= 0).any(dim=1).sum())
    if name == "make_tables":
        return treated * 2.0 * 3 * 256 * 4
    canvases = len(table_BN) * 3 * side**2 if name == "warp" else 0
    return canvases + treated * IMAGES[name] * 3 * size**2 * 4


def counted(
    preset: str, count: int, size: int = SIZE, side: int = SIDE
) -> dict[str, dict[str, float]]:
    """Launches, copies, waits and gigabytes of a step's views, by whose kernels they are drawn."""
    result = {}
    for name, compiled in (("PyTorch", False), ("Triton", True)):
        with FakeGPU() as gpu, patch.object(chain, "launch", gpu.launch), driverless(gpu):
            pipeline = Pipeline(PRESETS[preset], size, compiled)
            canvases = Canvases.of(torch.empty(count, side, side, 3, dtype=torch.uint8))
            canvases = replace(canvases, values_T=on_gpu(canvases.values_T))
            memory = pipeline.buffer(count, GPU, torch.bfloat16)
            records = pipeline.draw(count, torch.Generator().manual_seed(0))
            pipeline.views(canvases, records, memory)
        moved = float(gpu.moved)
        if compiled:
            sampled = recorded(preset, SAMPLED, size, side)
            bytes_of_sampled = sum(traffic(*launch, size, side) for launch in sampled)
            moved += bytes_of_sampled * (count / SAMPLED)
        result[name] = {
            "launches": gpu.launches.total(),
            "copies": gpu.copies,
            "waits": len(gpu.waits),
            "GB": moved / 1e9,
        }
    return result


@contextmanager
def driverless(gpu: FakeGPU) -> Iterator[None]:
    """PyTorch looks for a driver before it makes a fake tensor of a GPU."""

    def pin(tensor: Tensor) -> Tensor:
        gpu.pinned.append(tensor)
        return tensor

    with (
        patch.object(fake_gpu, "AT_ONCE", 2**16),  # what a driver takes over at once
        patch.object(torch.cuda, "_lazy_init", lambda: None),
        patch.object(torch.cuda, "get_device_capability", lambda device: (9, 0)),
        patch("mast.augment.fused.works_on", lambda device: True),
        patch.object(Tensor, "pin_memory", pin),
    ):
        yield


def resources(kernel: Any, arguments: dict[str, Any], capability: int) -> dict[str, int]:
    """Registers of a thread, bytes of its stack, and bytes of shared memory of a program."""
    constants = {
        (at,): arguments[parameter.name]
        for at, parameter in enumerate(kernel.params)
        if parameter.is_constexpr
    }
    signature = {
        parameter.name: "constexpr" if parameter.is_constexpr else kind(arguments[parameter.name])
        for parameter in kernel.params
    }
    # PyTorch's memory begins at a multiple of 16, of which a launch makes use
    aligned = {
        (at,): [["tt.divisibility", 16]]
        for at, parameter in enumerate(kernel.params)
        if isinstance(arguments[parameter.name], Tensor)
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    machine_code = triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(machine_code)
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"(REG|STACK|SHARED):(\d+)", text))
    return {
        "registers": int(found["REG"]),
        "stack": int(found["STACK"]),
        "shared": int(found["SHARED"]),
    }


def kind(argument: Any) -> str:
    """Triton's name for the type of an argument."""
    return TYPES[argument.dtype] if isinstance(argument, Tensor) else "i32"


def compiled(capability: int) -> dict[str, dict[str, int]]:
    """The resources of every kernel of MAST-19's views and of cubics, for a generation of GPUs."""
    found: dict[str, dict[str, int]] = {}
    for preset in ("mast19", "vicreg"):
        for kernel, arguments in recorded(preset, 2):
            of = arguments["of"]
            options = [", bicubic"] * (of.bicubic and kernel.__name__ == "warp")
            options += [", back"] * of.back
            name = "".join([kernel.__name__, *options])
            if name not in found:
                found[name] = resources(kernel, arguments, capability)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--presets", nargs="+", default=["mast5", "mast15", "mast19"])
    parser.add_argument("--images", type=int, default=512)
    options = parser.parse_args()
    result = {
        "images": options.images,
        "views": {preset: counted(preset, options.images) for preset in options.presets},
        "kernels": {str(capability): compiled(capability) for capability in CAPABILITIES},
        "provenance": provenance(),
    }
    for preset, entries in result["views"].items():
        for name, values in entries.items():
            print(f"{preset}, {name}: {values}")
    for capability, kernels in result["kernels"].items():
        for name, values in kernels.items():
            print(f"sm_{capability} {name}: {values}")
    write_json(RESULTS / "fused.json", result)


if __name__ == "__main__":
    main()
