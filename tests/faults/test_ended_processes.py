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
from mast.core.run import RunFolder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="orphans are seen on Linux alone"),
]

Configure = Callable[..., mast.PretrainConfig]
# By what happens to which process: the exit code and the only line that is said of it.
ENDS = {
    ("killed", 1): (
        2,
        r"error: process 1 ended: it was killed by SIGKILL; the same command continues from step 2",
    ),
    ("launcher killed", 0): (-9, r"SIGTERM: stopped after step \d of 15, which is saved: .*"),
    ("disk is full", 1): (2, r"error: /somewhere/file: No space left on device"),
    ("asked", 0): (130, r"SIGINT: stopped; the same command continues from step \d+"),
    ("none", 0): (0, r"done: .*ended/encoder\.safetensors"),
}
SECONDS = 30.0  # as the document promises; on an idle machine it takes 3


def train(config: Path, out: Path, event: str, rank: int) -> tuple[int, float, str]:
    """The exit code, the seconds from the event until all processes had ended, and what they said.

    All processes hold the pipe from which this one reads.
    """
    since = config.with_name("since")
    script = Path(__file__).parent.parent / "ended.py"
    words = ["pretrain", "--config", str(config), "--devices", "2", "--out", str(out)]
    around = {"EVENT": event, "RANK_OF_EVENT": str(rank), "SINCE": str(since)}
    ended = subprocess.run(
        [sys.executable, str(script), *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | around,
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return ended.returncode, time.time() - float(since.read_text()), ended.stderr


def told(text: str) -> list[str]:
    """What processes said at their end: neither how they began nor what they logged."""
    begun = ("Initializing", "----", "distributed_backend", "All distributed", "training ",
             "pretrain: ", "epoch ", "warning: ", "next: ", "stopping after this step")  # fmt: skip
    return [line for line in text.splitlines() if line.strip() and not line.startswith(begun)]


def test_a_process_that_ends_early_ends_all_and_the_run_continues(
    tiny: Configure, tmp_path: Path
) -> None:
    config = tiny(epochs=5, log_every=1, score_every=5, checkpoint_minutes=0.0)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(record(config)))
    for (event, rank), (expected, line) in ENDS.items():
        code, seconds, text = train(file, tmp_path / "ended", event, rank)
        assert code == expected, text
        (said,) = told(text)
        assert re.fullmatch(line, said), text
        assert seconds < SECONDS or event == "none", text
    train(file, tmp_path / "whole", "none", 0)
    continued, uninterrupted = RunFolder(tmp_path / "ended"), RunFolder(tmp_path / "whole")
    assert continued.encoder.read_bytes() == uninterrupted.encoder.read_bytes()


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
    assert re.fullmatch(rf"{number.name}: stopped.* what was saved.*", said)
    assert all(line.startswith("pretrain: ") for line in shown)  # what it does, if it takes long
    assert {path.suffix for path in (tmp_path / "cache").glob("*")} <= {".lock"}
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_a_script_that_processes_cannot_read_again_is_refused(photos: Path) -> None:
    script = (
        f"import mast\nmast.pretrain(mast.configure('mast_c5_small', {str(photos / 'train')!r}, "
        "size=32, batch_size=16, device='cpu', devices=2))"
    )
    ended = subprocess.run([sys.executable], input=script, text=True, capture_output=True)  # noqa: PLW1510
    assert "several processes need a script in a file" in ended.stderr


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
