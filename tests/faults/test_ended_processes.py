"""Where one of several processes ends early, all do: soon, in one line, and the run goes on."""

import json
import os
import re
import signal
import subprocess
import sys
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
# The exit code and the line, by moment (`ended.EVENTS`).
ENDS = (
    (
        2,
        r"error: process 1 ended: it was killed by SIGKILL; the same command continues from step 2",
    ),
    (-9, r"SIGTERM: stopped after step \d of 15, which is saved: .*"),
    (2, r"error: /somewhere/file: No space left on device"),
    (1, r"error: KeyError: 'a bug'. This is a fault of mast: .*"),
    (130, r"SIGINT: stopped; the same command continues from step \d+"),
    (2, r"error: process 1 ended: it was killed by SIGKILL; the same command .* from step \d+"),
    (0, r"done: .*ended/encoder\.safetensors"),
    (0, r"done: .*whole/encoder\.safetensors"),
)
SECONDS = 20.0  # which take 3 on an idle machine


def told(text: str) -> list[str]:
    """What processes said at their end: neither how they began nor what they logged."""
    begun = ("Initializing", "----", "distributed_backend", "All distributed", "training ",
             "pretrain: ", "epoch ", "warning: ", "stopping after this step")  # fmt: skip
    return [line for line in text.splitlines() if line.strip() and not line.startswith(begun)]


def test_a_process_that_ends_early_ends_all_and_the_run_continues(
    tiny: Configure, tmp_path: Path
) -> None:
    config = tiny(epochs=5, log_every=1, score_every=5, checkpoint_minutes=0.0)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(record(config)))
    script = Path(__file__).parent.parent / "ended.py"
    ended = subprocess.run(
        [sys.executable, str(script), str(file), str(tmp_path)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(rows) == len(ENDS)
    for (code, seconds, text), (expected, line) in zip(rows, ENDS, strict=True):
        lines = told(text)
        assert code == expected, text
        assert len(lines) == 1, text
        assert re.fullmatch(line, lines[0]), text
        assert seconds < SECONDS, text
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


@pytest.mark.parametrize(
    "work",
    [
        "try:\n ask()\nexcept BaseException: raise ImportError('half of a module')",
        # The second one, while the first is answered, ends the process.
        "try: ask()\nfinally:\n try: ask()\n except BaseException: print('on', file=sys.stderr)",
    ],
)
def test_a_signal_that_a_library_makes_something_else_of_is_one_line(work: str) -> None:
    program = (
        "import os, signal, sys\n"
        "from mast.cli import command, main\n"
        "def ask(): os.kill(os.getpid(), signal.SIGHUP)\n"
        "command._run = lambda words, program: exec(sys.argv[1])\n"
        "sys.exit(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, work], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 129, ended.stderr
    assert re.fullmatch(r"SIGHUP: stopped.*\n", ended.stderr)


GONE = """
import os, signal, sys
read, write = os.pipe()
os.close(read)
os.dup2(write, 2)  # as of a terminal that was closed, which is what SIGHUP says
sys.stderr = os.fdopen(2, "w")
from mast.cli import command, main
from mast.core.stopping import Interrupted, StopRequest
stop = StopRequest()
def work(words, program):
    if sys.argv[1] == "by an exception":
        os.kill(os.getpid(), signal.SIGHUP)
    with stop.listening():
        os.kill(os.getpid(), signal.SIGHUP)
    print(f"the step is finished, and {stop.number} is noted")
    raise Interrupted(stop.number, "saved")
command._run = work
sys.exit(main())
"""


@pytest.mark.parametrize("when", ["by an exception", "after the step"])
def test_where_the_terminal_is_gone_a_signal_does_the_same(when: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", GONE, when], stdout=subprocess.PIPE, text=True, check=False
    )
    assert ended.returncode == 129
    assert ended.stdout == ("the step is finished, and 1 is noted\n" if "step" in when else "")


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
