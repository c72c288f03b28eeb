"""The page of a run while it trains: what it says, and who may read it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pages import make_run

import mast
from mast.cli import main
from mast.config import configuration_of
from mast.core.errors import UserError
from mast.core.memory import process_memory
from mast.core.run import RunFolder
from mast.page import LivePage, LocalServer
from mast.page.live import Standing, seconds_left, standing

linux = pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="asks Linux")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run after its first epoch of 50, which this process trains."""
    run = make_run(tmp_path / "flowers", epochs=50)
    run.encoder.unlink()
    run.holder.write_text(f"process {os.getpid()} on {socket.gethostname()}")
    return run


def log(run: RunFolder, epoch: float, **more: Any) -> None:
    line = {"step": round(2 * epoch), "epoch": epoch, "loss": 2.5, "lr": 0.1, "seconds": 60 * epoch}
    run.append_metrics({**line, "images_per_second": 1234.4} | more)


def facts(html: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html))


@contextmanager
def served(page: LivePage) -> Iterator[LocalServer]:
    with LocalServer(page.answers()) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(
    server: LocalServer, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, dict[str, str], str]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, dict(response.getheaders()), text


def test_a_run_that_grows(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.page.live.PAUSE", 0.0)
    with served(LivePage(run)) as server:
        status, headers, text = get(server, "/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        first = json.loads(get(server, "/parts.json")[2])
        assert facts(text)["Epoch"] == facts(first["now"])["Epoch"] == "1 of 50"
        assert facts(first["now"])["kNN on its own images"] == "30.0 %"
        assert "MAST trains resnet18 on photos for 50 epochs at 32 pixels" in first["now"]
        assert "loss: 4 at first, 3 at last" in first["curves"]
        assert "Wider than the screen: swipe or scroll" in first["curves"]

        for epoch in (2, 3, 4):
            log(run, epoch)
        run.append_metrics({"step": 8, "warning": "Collapse: <b>look</b>."})
        with run.metrics.open("a") as file:
            file.write('{"step": 9, "epo')  # being written
        then = json.loads(get(server, "/parts.json")[2])
        assert "loss: 4 at first, 2.5 at last" in then["curves"]
        assert "Last warning: Collapse: &lt;b&gt;look&lt;/b&gt;. (step 8)" in then["now"]
        assert f"Running as process {os.getpid()}." in then["now"]
        shown = facts(then["now"])
        assert shown["Epoch"] == "4 of 50"
        assert shown["Images a second"] == "1,234"
        assert shown["Loss"] == "2.50"
        assert shown["Last logged"].endswith("ago")


def test_it_loads_nothing_from_elsewhere(run: RunFolder, tmp_path: Path) -> None:
    live, still = (LivePage(run).html(live) for live in (True, False))
    for text in (live, still):
        assert not re.search(r"""(src|href|action)\s*=\s*["']?(https?:)?//""", text)
        assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", text)
        assert "default-src &#39;none&#39;" in text
    assert 'http-equiv="refresh"' in live
    assert "connect-src &#39;self&#39;" in live
    assert "<script>" not in still
    assert 'http-equiv="refresh"' not in still
    file = tmp_path / "now.html"
    assert mast.watch(run.path, once=file) == file
    assert facts(file.read_text())["Epoch"] == "1 of 50"


def test_who_may_read_it(run: RunFolder) -> None:
    with served(LivePage(run)) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert get(server, "/", host=f"localhost:{server.port}")[0] == 200
        for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", "localhost:1"):
            status, _, text = get(server, "/parts.json", host=host)
            assert (status, text) == (403, f"open {server.address}\n")
        for path in ("/config.yaml", "/../flowers/config.yaml", "/?x", "/metrics.jsonl"):
            assert get(server, path)[0] == 404
        for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
            assert get(server, "/", method)[0] == 501
        headers = get(server, "/")[1]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        assert "Access-Control-Allow-Origin" not in headers
        with pytest.raises(UserError, match=f"cannot listen on port {server.port}: .*0 for any"):
            LocalServer({}, server.port)
        run.path.rename(run.path.with_name("moved"))
        assert get(server, "/parts.json")[0] == 503


def test_the_curves_leave_the_processor_to_the_training(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = 0

    def draw(*_: object) -> str:
        nonlocal drawn
        drawn += 1
        time.sleep(0.01)
        return "<svg viewBox=''></svg>"

    page = LivePage(run)
    monkeypatch.setattr("mast.page.live.as_svg", draw)
    page.parts()
    page.parts()
    assert drawn == 1  # nothing is new
    log(run, 2)
    assert facts(page.parts()["now"])["Epoch"] == "2 of 50"
    assert drawn == 1
    monkeypatch.setattr("mast.page.live.time.monotonic", lambda: float("inf"))
    page.parts()
    assert drawn == 2


def test_time_left() -> None:
    steady = [{"step": at, "epoch": at / 4, "seconds": 10.0 * at} for at in range(1, 9)]
    assert seconds_left(steady, 10) == pytest.approx(8 * 40)
    slow = [{"step": 8 + at, "epoch": 2 + at / 4, "seconds": 80 + 30.0 * at} for at in range(51)]
    assert seconds_left([*steady, *slow, {"step": 1, "warning": "x"}], 20) == pytest.approx(
        (20 - 14.5) * 120
    )
    assert seconds_left(steady[:1], 10) is None
    assert seconds_left([], 10) is None


@linux
def test_whether_a_process_trains_it(run: RunFolder) -> None:
    def now() -> Standing:
        return standing(run, configuration_of(run), run.read_metrics())

    own = process_memory(os.getpid())
    assert own is not None
    memory = dict(now().facts)["Memory of its process"]
    assert float(memory.removesuffix(" GB")) == pytest.approx(own / 1e9, abs=0.1)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    run.holder.write_text(f"process {ended.pid} on {socket.gethostname()}")
    assert now().state.startswith("Not running")
    assert "Time left" not in dict(now().facts)
    run.holder.write_text("process 7 on elsewhere")
    assert now().state == "Running as process 7 on elsewhere, as far as its folder says."
    run.encoder.touch()
    assert now().state == "Complete."
    run.encoder.unlink()
    run.holder.unlink()
    assert now().state.startswith("Not running")


def test_a_run_that_has_logged_nothing(run: RunFolder) -> None:
    run.metrics.unlink()
    text = LivePage(run).html()
    assert "Nothing was logged." in text
    assert set(facts(text)) <= {"Free disk", "Memory of its process"}


def test_numbers_that_are_not_finite(run: RunFolder) -> None:
    log(run, 3, loss=float("nan"), seconds=float("inf"))
    shown = standing(run, configuration_of(run), run.read_metrics())
    assert dict(shown.facts)["Loss"] == "not finite"
    assert not {"Time left", "Time spent"} & dict(shown.facts).keys()
    assert (shown.good, shown.verdict) == (False, "The loss diverged.")


def test_bad_requests_are_one_line(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        ([str(tmp_path / "none")], "is not a run folder"),
        ([str(run.path), "--port", "70000"], "expected a port of 0 to 65535, got 70000"),
        ([str(run.path), "--port", "80", "--once", "x.html"], "leave out one of both"),
    ):
        assert main(["watch", *words]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_ctrl_c_ends_it_in_one_line(run: RunFolder) -> None:
    command = [sys.executable, "-m", "mast.cli", "watch", str(run.path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        said = next(line for line in lines if "loading PyTorch" not in line)  # on a slow machine
        assert re.fullmatch(r"watching .* on http://127\.0\.0\.1:\d+/ until Ctrl-C\n", said)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest == "SIGINT: the page is no longer served; the run is not touched\n"
