"""How much memory there is, as Linux's files say."""

from pathlib import Path

import pytest
import torch

from mast.core.memory import machine_memory, memory_of

KB = 1024
MEMINFO = {"proc/meminfo": "MemTotal:   1000 kB\nHugePages_Total:   0\nSwapTotal: 100 kB\n"}
V1, V2 = "9:memory:/a/b\n8:cpu,cpuacct:/a\n", "0::/a/b\n"
UNLIMITED = "9223372036854771712"  # as version 1 says it
IN_1, IN_2 = "sys/fs/cgroup/memory/", "sys/fs/cgroup/"
MACHINES: dict[str, tuple[dict[str, str], int | None]] = {
    "no Linux": ({}, None),
    "damaged": ({"proc/meminfo": "MemTotal: much"}, None),
    "no groups": (MEMINFO, 1100 * KB),
    "version 1, without a limit": (
        {**MEMINFO, "proc/self/cgroup": V1, f"{IN_1}a/b/memory.limit_in_bytes": UNLIMITED},
        1100 * KB,
    ),
    "version 1, of its own group": (
        {**MEMINFO, "proc/self/cgroup": V1, f"{IN_1}a/b/memory.limit_in_bytes": "4096\n"},
        4096 + 100 * KB,
    ),
    "version 1, swap too": (
        {
            **MEMINFO,
            "proc/self/cgroup": V1,
            f"{IN_1}a/b/memory.limit_in_bytes": "4096",
            f"{IN_1}a/b/memory.memsw.limit_in_bytes": "5000",
        },
        5000,
    ),
    "version 1, of a container": (
        {**MEMINFO, "proc/self/cgroup": V1, f"{IN_1}memory.limit_in_bytes": "4096"},
        4096 + 100 * KB,
    ),
    "version 2, without a limit": (
        {**MEMINFO, "proc/self/cgroup": V2, f"{IN_2}a/b/memory.max": "max\n"},
        1100 * KB,
    ),
    "version 2, of a group above": (
        {
            **MEMINFO,
            "proc/self/cgroup": V2,
            f"{IN_2}a/b/memory.max": "9000",
            f"{IN_2}a/memory.max": "4096",
            f"{IN_2}a/memory.swap.max": "0",
        },
        4096,
    ),
    "version 2, of a container": (
        {**MEMINFO, "proc/self/cgroup": "0::/\n", f"{IN_2}memory.max": "4096"},
        4096 + 100 * KB,
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_the_lowest_limit_holds(tmp_path: Path, name: str) -> None:
    files, expected = MACHINES[name]
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    assert machine_memory(tmp_path) == expected


def test_a_gpu_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1, 2))
    assert memory_of(torch.device("cuda")) == 2
    assert memory_of(torch.device("cpu")) == machine_memory()
    assert memory_of(torch.device("meta")) is None
