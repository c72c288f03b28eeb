"""The run folder: the only thing that passes between commands.

config.yaml           the full configuration
provenance.json       versions, git revision, device, seed, data fingerprint
metrics.jsonl         one line a logged step, evaluation or warning
checkpoints/last.pt   everything needed to continue; last.previous.pt is the one before it
checkpoints/best.safetensors   the encoder at its best online score
embedding.safetensors what the method learned beside its encoder: projector, masks
encoder.safetensors   the trained encoder; it exists only when the run is complete
spaces/               results in a space each, where something was
classifier-*.safetensors   a classifier on the encoder, by `mast fit`
tensorboard/          the same metrics for TensorBoard, where it is installed
evaluations/*.json    one file per protocol and data set, by `mast evaluate`
analysis/*.npz        the arrays of one analysis each, by `mast analyze`, beside their figures
analysis/missing.json why others could not be made
untrained/            evaluations of its encoder before training, by `mast evaluate --untrained`
exports/<format>/     its encoder for another library, by `mast export`
exports/classifier-*/ a classifier likewise
report.html           one page, by `mast report`
"""

import json
import logging
import math
import os
import platform
import re
import socket
import subprocess
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from mast.core.checkpoint import UNFINISHED, write_json, write_text
from mast.core.errors import UserError
from mast.core.files import as_unicode, locked, read_json, writing

_log = logging.getLogger("mast")

EVALUATIONS = "evaluations"  # inside a run folder
SPACES = "spaces"  # likewise, with a folder of evaluations in a space each
MOST = 2**53  # steps and epochs of a training
PACKAGES = (
    "mast-ssl",
    "torch",
    "torchvision",
    "timm",
    "lightning-fabric",
    "numpy",
    "numba",
    "pillow",
    "torchmetrics",
    "faster-coco-eval",
)


class RunFolder:
    """Paths of a run, and its log; the folder need not exist yet."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lock = self.path / ".lock"
        self.holder = self.path / ".holder"
        self.config = self.path / "config.yaml"
        self.provenance = self.path / "provenance.json"
        self.metrics = self.path / "metrics.jsonl"
        self.last = self.path / "checkpoints" / "last.pt"
        self.best = self.path / "checkpoints" / "best.safetensors"
        self.embedding = self.path / "embedding.safetensors"
        self.encoder = self.path / "encoder.safetensors"
        self.tensorboard = self.path / "tensorboard"
        self.evaluations = self.path / "evaluations"
        self.analysis = self.path / "analysis"
        self.untrained = self.path / "untrained"
        self.exports = self.path / "exports"

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    def __fspath__(self) -> str:
        """So that functions take what `mast.pretrain` returns as they take its path."""
        return str(self.path)

    def require(self) -> "RunFolder":
        """This folder, if it holds a run."""
        if not self.config.is_file():
            raise UserError(f"{self.path} is not a run folder: it has no config.yaml")
        return self

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder, so that no second process trains in it; a killed one lets go of it."""
        from filelock import Timeout

        self._refuse_something_else()
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                if not stack.enter_context(locked(self.lock, wait=False)):
                    _log.warning(
                        "%s is on a file system without locks: see to it that no second process "
                        "trains in it", self.path,
                    )  # fmt: skip
            except Timeout as error:
                holder = "another process"
                if self.holder.is_file():
                    holder = self.holder.read_text(errors="replace")
                raise UserError(
                    f"{self.path} is in use by {holder}. Wait until it ends, or give another out."
                ) from error
            except OSError as error:
                raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error
            stack.callback(self._forget, made)
            write_text(self.holder, f"process {os.getpid()} on {socket.gethostname()}")
            yield

    def _forget(self, made: Sequence[Path]) -> None:
        """Let go of the folder; of one that was made for a run that never began, nothing stays."""
        self.holder.unlink(missing_ok=True)
        if made and [*self.path.iterdir()] == [self.lock]:
            with suppress(OSError):
                self.lock.unlink()
                for folder in made:
                    folder.rmdir()

    def _refuse_something_else(self) -> None:
        def ours(file: Path) -> bool:
            return file in (self.lock, self.holder) or file.match(UNFINISHED)

        if self.lock.is_file() and self.lock.stat().st_size:
            raise UserError(
                f"{self.lock} is not a run's lock, which is an empty file: choose another out"
            )
        holder = self.holder.read_text(errors="replace") if self.holder.is_file() else ""
        if holder and not re.fullmatch(r"process \d+ on .+", holder):
            raise UserError(
                f"{self.holder} was not written by a run: remove it, or choose another out"
            )
        if self.config.is_file() or not self.path.exists():
            return
        if not self.path.is_dir() or not all(map(ours, self.path.iterdir())):
            raise UserError(f"{self.path} exists and is not a run folder; choose another out")

    def open(
        self,
        config: dict[str, Any],
        operational: Collection[str],
        read: Callable[[Path], dict[str, Any]],
    ) -> None:
        """Create the folder, or make sure that it holds a run of the same configuration.

        Args:
            config: The configuration as plain values.
            operational: Dotted names that may differ (device, threads, …): they do not change what
                is computed.
            read: Reads an existing config.yaml as plain values.
        """
        if as_unicode(str(self.path)) != str(self.path):
            raise UserError(
                f"{self.path} is no name for a run folder, as it is not UTF-8 in this locale: name "
                "another out, or set LC_ALL=C.UTF-8"
            )
        if self.config.is_file():
            before = flatten(read(self.config))
            now = flatten(config)
            for name in sorted(before.keys() | now.keys()):
                old, new = before.get(name), now.get(name)
                if old != new and name not in operational:
                    raise UserError(
                        f"{self.path} holds a run with {name}={old!r}, now it is {new!r}. Give the "
                        "same values to continue that run, or another out for a new one."
                    )
        self._refuse_something_else()
        write_text(self.config, yaml.safe_dump(config, sort_keys=False))

    def append_metrics(self, record: dict[str, Any]) -> None:
        """Add one line to metrics.jsonl."""
        with writing(self.metrics), self.metrics.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """All complete lines of metrics.jsonl; a last line cut by a kill is left out.

        Lines that are damaged are left out with a warning: the log is not needed to continue.
        """
        if not self.metrics.is_file():
            return []
        text = self.metrics.read_text("utf-8", errors="replace")
        lines = text[: text.rfind("\n") + 1].splitlines()
        records = [record for line in lines if (record := _logged(line)) is not None]
        if len(records) < len(lines):
            damaged = len(lines) - len(records)
            _log.warning("%s: %d damaged lines are left out", self.metrics, damaged)
        return records

    def read_provenance(self) -> dict[str, Any]:
        """What produced this run; empty where it is not known, with a warning if it is damaged."""
        return read_optional(
            self.provenance,
            {
                "data": dict, "data.images": int, "versions": dict, "versions.torch": str,
                "processes": int, "representation": int,
            },
        )  # fmt: skip

    def read_missing(self) -> dict[str, str]:
        """Why analyses could not be made, by name; likewise."""
        missing = read_optional(self.analysis / "missing.json", {})
        return {name: str(reason) for name, reason in missing.items()}

    def rewind_metrics(self, step: int) -> None:
        """Drop what was logged after `step`, by a process that was killed since."""
        if os.path.lexists(self.metrics) and not self.metrics.is_file():
            raise UserError(
                f"{self.metrics} is not a file: remove it, or restore what it points to"
            )
        records = [record for record in self.read_metrics() if record["step"] <= step]
        text = "".join(json.dumps(record) + "\n" for record in records)
        if self.metrics.is_file():
            write_text(self.metrics, text)

    def write_provenance(self, **facts: Any) -> None:
        """Write what produced this run: package versions, machine, git revision and `facts`."""
        write_json(self.provenance, {**provenance(), **facts})


def read_optional(path: Path, kinds: Mapping[str, type]) -> dict[str, Any]:
    """A JSON file that nothing depends on: its fields, none where it is missing or damaged.

    `kinds` has the types of some fields, by dotted name.
    """
    if not path.exists():
        return {}
    try:
        values = read_json(path)
        if not isinstance(values, dict):
            raise UserError(f"{path} is damaged: it holds no fields")
        known = values | flatten(values)
        for name in kinds.keys() & known.keys():
            if not isinstance(known[name], kinds[name]):
                raise UserError(f"{path} is damaged: {name} is not what it was")
    except UserError as error:
        _log.warning("%s; it is left out", error)
        return {}
    return values


def _logged(line: str) -> dict[str, Any] | None:
    """A line of metrics.jsonl, None if it is damaged, or no training can have written it."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or type(record.get("step")) is not int:
        return None
    if not isinstance(record.get("warning", ""), str):
        return None
    numbers = {name: value for name, value in record.items() if name != "warning"}
    if any(type(value) not in (int, float) for value in numbers.values()):
        return None
    # A loss may be infinite or NaN, and is float32 otherwise; what counts is neither.
    counts = [numbers[name] for name in ("step", "epoch") if name in numbers]
    whole = all(0 <= value < MOST for value in counts)
    whole &= all(abs(value) < 1e100 or not -math.inf < value < math.inf
                 for value in numbers.values())  # fmt: skip
    return record if whole else None


def provenance() -> dict[str, Any]:
    """Versions, machine and git revision of this process, for every result file."""
    import torch

    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "versions": versions,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "git_revision": _git_revision(),
    }


def _git_revision() -> str | None:
    """Revision of the checkout that this package is imported from; None when installed.

    It is not that of a project of the user's, in which it may be installed, nor the one that Git's
    own environment variables name.
    """
    root = Path(__file__).parents[2]
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["name"]
        if project != PACKAGES[0] or not (root / ".git").exists():
            return None
        place = [f"--git-dir={root / '.git'}", f"--work-tree={root}"]
        command = ["git", *place, "describe", "--always", "--dirty"]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return process.stdout.strip() or None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def plain(value: Any) -> Any:
    """A configuration (nested dataclasses) as values that YAML and JSON have."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if type(value).__module__ == "numpy":
        return value.item()
    return str(value) if isinstance(value, Path) else value


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one dict of dotted names: {"a": {"b": 1}} to {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
