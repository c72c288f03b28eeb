"""Two hosts in network namespaces, of which a process or a whole host is killed, again and again.

    python benchmarks/nodes.py [--kills 20]

Needs Linux, root, and `ip`. torchrun starts one process on each host, which train together by gloo
on shards. At a random moment of the training a random victim is killed by SIGKILL: the process of
either host, or all of a host. Measured is how long it takes until nothing of the command runs any
more. The same command is started again, and in the end the encoder is compared, byte for byte, with
that of a run that nobody killed.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from measure import RESULTS

import mast
from mast.commands.shard import shard
from mast.core.checkpoint import write_json
from mast.core.run import RunFolder, provenance
from mast.recipes import configure

HOSTS = ("mast-a", "mast-b")
ADDRESS = "10.77.0.{}"
PATIENCE_S, WHOLE_S = 120.0, 900.0
STEPS_AN_EPOCH, EPOCHS = 12, 20


@contextmanager
def hosts() -> Iterator[None]:
    """Two namespaces with a cable between them."""

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    for host in HOSTS:
        with suppress(subprocess.CalledProcessError):
            ip("netns", "delete", host)
        ip("netns", "add", host)
    try:
        ip("link", "add", "cable0", "type", "veth", "peer", "name", "cable1")
        for number, host in enumerate(HOSTS):
            ip("link", "set", f"cable{number}", "netns", host)
            inside = ("-n", host)
            ip(
                *inside,
                "address",
                "add",
                f"{ADDRESS.format(number + 1)}/24",
                "dev",
                f"cable{number}",
            )
            ip(*inside, "link", "set", f"cable{number}", "up")
            ip(*inside, "link", "set", "lo", "up")
        yield
    finally:
        for host in HOSTS:
            ip("netns", "delete", host)


class Job:
    """The command on both hosts.

    Args:
        config: Of the run.
        out: Its folder.
        port: Where the processes meet.
    """

    def __init__(self, config: Path, out: Path, port: int) -> None:
        self.log = out.with_suffix(".log")
        self.agents = []
        for number, host in enumerate(HOSTS):
            command = ["ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run",
                       "--nnodes", "2", "--node-rank", str(number), "--nproc-per-node", "1",
                       "--master-addr", ADDRESS.format(1), "--master-port", str(port),
                       "-m", "mast.cli", "pretrain", "--config", str(config), "--out",
                       str(out)]  # fmt: skip
            environment = os.environ | {
                "GLOO_SOCKET_IFNAME": f"cable{number}", "OMP_NUM_THREADS": "1"
            }  # fmt: skip
            with self.log.open("a") as log:
                self.agents.append(
                    subprocess.Popen(
                        command, env=environment, stdout=log, stderr=log, start_new_session=True
                    )
                )

    def processes(self, host: int) -> list[int]:
        """All of a host: the agent, and the process that trains."""
        found = [self.agents[host].pid]
        for own in found:
            with suppress(OSError):
                children = Path(f"/proc/{own}/task/{own}/children").read_text()
                found += map(int, children.split())
        return [own for own in found if Path(f"/proc/{own}").exists()]

    def kill(self, victim: str) -> None:
        """Kill "process 0", "process 1", "host 0" or "host 1"."""
        what, host = victim.split()
        found = self.processes(int(host))
        for own in found if what == "host" else found[-1:]:
            with suppress(ProcessLookupError):
                os.kill(own, signal.SIGKILL)

    def ended(self, patience: float = PATIENCE_S) -> float:
        """Wait until nothing of it runs; how long that took in seconds."""
        started = time.monotonic()
        both = [process for host in range(2) for process in self.processes(host)]
        for agent in self.agents:
            agent.wait(patience)
        while any(_runs(process) for process in both):
            assert time.monotonic() - started < patience, both
            time.sleep(0.05)
        return time.monotonic() - started


def _runs(process: int) -> bool:
    try:
        return not re.search(r"\) Z ", Path(f"/proc/{process}/stat").read_text())
    except OSError:
        return False


def steps(run: RunFolder) -> int:
    """Steps in the log of a run so far."""
    if not run.metrics.is_file():
        return 0
    return sum(1 for _ in run.metrics.open())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, port = random.Random(options.seed), 29_500
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place, hosts():
        root = Path(place)
        shards = shard("factors@train:96", root / "set", size=32, images=20)
        config = configure(
            "mast_c5_small",
            data={"spec": f"shards:{shards.path}", "shuffle": 30},
            size=32,
            batch_size=8,
            epochs=EPOCHS,
            log_every=1,
            score_every=EPOCHS,
            checkpoint_minutes=0.0,
            device="cpu",
            encoder={"name": "timm:resnet18",
                     "options": {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]}},
            objective={"projector": {"hidden": 32, "dim": 24}},
        )  # fmt: skip
        file = root / "config.yaml"
        file.write_text(mast.show_config(config))
        whole, cut = RunFolder(root / "whole"), RunFolder(root / "cut")
        Job(file, whole.path, port).ended(WHOLE_S)
        assert whole.encoder.is_file(), (root / "whole.log").read_text()[-3000:]
        while not cut.encoder.is_file():
            port += 1
            job, before = Job(file, cut.path, port), steps(cut)
            if len(rows) < options.kills:
                while steps(cut) <= before and not cut.encoder.is_file():
                    assert any(agent.poll() is None for agent in job.agents), cut.path
                    time.sleep(0.02)
                time.sleep(draw.uniform(0.0, 0.8))
                victim = draw.choice(["process 0", "process 1", "host 0", "host 1"])
                reached = steps(cut)
                job.kill(victim)
                rows.append({"victim": victim, "step": reached, "seconds": job.ended()})
                print(rows[-1], flush=True)
            else:
                job.ended(WHOLE_S)
        same = whole.encoder.read_bytes() == cut.encoder.read_bytes()
        print("the same encoder:", same)
        said = (root / "cut.log").read_text()
        lines = sorted(set(re.findall(r"^error: .*$", said, re.MULTILINE)))
        print("\n".join(lines))
    write_json(
        RESULTS / "nodes.json",
        {"kills": rows, "same": same, "steps": EPOCHS * STEPS_AN_EPOCH, "provenance": provenance()},
    )
    assert same


if __name__ == "__main__":
    main()
