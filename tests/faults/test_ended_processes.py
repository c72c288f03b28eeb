"""Where one of several processes ends early, all do: soon, in one line, and the run goes on."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import mast
from mast.config import record
from mast.core.checkpoint import load_checkpoint
from mast.core.run import RunFolder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="orphans are seen on Linux alone"),
]

Configure = Callable[..., mast.PretrainConfig]
PROCESS = """
import os, signal, sys, time
from pathlib import Path
from torch.optim.optimizer import register_optimizer_step_post_hook
from mast.cli import main
killed, since, *words = sys.argv[1:]
updates = iter(range(1, 4))
def look(*_):
    if next(updates, 0) == 3 and os.environ["RANK"] == killed:
        Path(since).write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
register_optimizer_step_post_hook(look)
sys.exit(main(words))
"""


def test_a_process_that_ends_early_ends_all_and_the_run_continues(
    tiny: Configure, tmp_path: Path
) -> None:
    config = tiny(epochs=5, log_every=1, score_every=5, checkpoint_minutes=0.0)
    file, script, since = (tmp_path / name for name in ("config.yaml", "process.py", "since"))
    file.write_text(yaml.safe_dump(record(config)))
    script.write_text(PROCESS)

    def by_torchrun(killed: str, out: str) -> int:
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2",
                    "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]  # fmt: skip
        words = ["pretrain", "--config", str(file), "--out", str(tmp_path / out)]
        return subprocess.run(
            [sys.executable, *launcher, str(script), killed, str(since), *words],
            env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, check=False,
        ).returncode  # fmt: skip

    cut, whole = RunFolder(tmp_path / "cut"), RunFolder(tmp_path / "whole")
    assert by_torchrun("1", "cut") != 0
    assert time.time() - float(since.read_text()) < 30
    assert not cut.encoder.exists()
    assert load_checkpoint(cut.last)["step"] >= 2
    assert [by_torchrun("none", out) for out in ("cut", "whole")] == [0, 0]
    assert cut.encoder.read_bytes() == whole.encoder.read_bytes()


# Where a signal comes, and what the process has done by then.
MOMENTS = {
    "before its words are read": ("import", "mast.cli.words"),
    "before PyTorch is imported": ("import", "torch"),
    "while images are decoded": ("open", ".jpg"),
}
PROGRAM = """
import os, sys
what, name, number = sys.argv[1:4]
left = [5 if what == "open" else 1]
def look(event, arguments):
    if event == what and str(arguments[0]).endswith(name):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), int(number))
sys.addaudithook(look)
sys.argv[1:4] = []
from mast.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_signal_before_training_is_one_line(moment: str, photos: Path, tmp_path: Path) -> None:
    number = signal.SIGTERM if moment.startswith("while") else signal.SIGINT
    words = ["pretrain", str(photos / "train"), "--size", "32", "--batch_size", "16"]
    words += ["--device", "cpu", "--out", str(tmp_path / "run")]
    words += [f"data.cache={tmp_path / 'cache'}"]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *MOMENTS[moment], str(int(number)), *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 128 + number, ended.stderr
    *shown, said = ended.stderr.splitlines()
    ends = "(earlier results stay saved|the same command resumes)"
    assert re.fullmatch(rf"{number.name}: stopped.* {ends}", said)
    assert all(line.startswith("pretrain: ") for line in shown)  # what it does, if it takes long
    assert {path.suffix for path in (tmp_path / "cache").glob("*")} <= {".lock"}
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_pipe_that_nobody_reads_any_more_is_no_fault() -> None:
    program = "import sys\nfrom mast.cli import main\nsys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", program, "show", "config"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as command:  # fmt: skip
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        shown = command.stderr.read().splitlines()
        assert all(line.startswith(b"show config: ") for line in shown)  # if it takes long
        assert command.wait() == 141
