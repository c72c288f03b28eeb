"""Memory of processes, as Linux's files say."""

from pathlib import Path

from mast.core.memory import process_memory

KB = 1024


def test_memory_of_a_process(tmp_path: Path) -> None:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    status = tmp_path / "proc" / "7" / "status"
    status.write_text("Name:\tpython\nVmHWM:\t    9 kB\nVmRSS:\t    2 kB\n")
    assert process_memory(7, tmp_path) == 2 * KB
    assert process_memory(8, tmp_path) is None
    status.write_text("Name:\tpython\nState:\tZ (zombie)\n")
    assert process_memory(7, tmp_path) is None
