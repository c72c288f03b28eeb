"""The run folder, which connects commands; docs/pretraining.md lists its files."""

import json
import logging
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml
from filelock import Timeout

from mast.core.checkpoint import write_text
from mast.core.errors import UserError
from mast.core.files import locked, out_folder, read_json, refuse_others

_log = logging.getLogger("mast")

EVALUATIONS = "evaluations"  # inside a run folder
SPACES = "spaces"  # inside a run folder: one folder of evaluations per space
MOST = 2**53  # steps and epochs of a training
PACKAGES = ("mast-ssl", "torch", "torchvision", "timm", "lightning-fabric", "numpy", "numba",
            "pillow", "torchmetrics", "faster-coco-eval")  # fmt: skip


class RunFolder:
    """Paths of a run, and its log; the folder may not exist yet."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.lock = self.path / ".lock"
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
        """Makes a run usable as a path."""
        return str(self.path)

    def require(self) -> "RunFolder":
        """This folder; raises if it holds no run."""
        if not self.config.is_file():
            raise UserError(f"{self.path} is not a run folder: it has no config.yaml")
        return self

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder against a second training; the lock ends with the process."""
        self._refuse_something_else()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with locked(self.lock, wait=False) as held:
                if not held:
                    _log.warning(
                        "%s is on a file system without locks: make sure that no second process "
                        "trains in it", self.path,
                    )  # fmt: skip
                yield
        except Timeout as error:
            raise UserError(
                f"out: {self.path} is in use by another process; wait, or choose another"
            ) from error
        finally:
            if self.path.is_dir() and [*self.path.iterdir()] == [self.lock]:  # never started
                self.lock.unlink()
                self.path.rmdir()

    def _refuse_something_else(self) -> None:
        """Refuse a folder with other files, which must not be overwritten."""
        if not self.config.is_file():
            refuse_others(out_folder(self.path), (), "mast pretrain")

    def open(self, config: dict[str, Any]) -> None:
        """Create the folder, and write the configuration."""
        self._refuse_something_else()
        write_text(self.config, yaml.safe_dump(config, sort_keys=False))

    def append_metrics(self, record: dict[str, Any]) -> None:
        """Add one line to metrics.jsonl."""
        try:
            with self.metrics.open("a") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise UserError(
                f"cannot write {self.metrics}: {error.strerror}. Free some space; the same command "
                "resumes."
            ) from error

    def read_metrics(self) -> list[dict[str, Any]]:
        """All complete lines of metrics.jsonl, without a last line cut off by a kill.

        Damaged lines are skipped with a warning, as resuming does not need the log.
        """
        if not self.metrics.is_file():
            return []
        text = self.metrics.read_text("utf-8", errors="replace")
        lines = text[: text.rfind("\n") + 1].splitlines()
        records = [record for line in lines if (record := _logged(line)) is not None]
        if len(records) < len(lines):
            damaged = len(lines) - len(records)
            _log.warning("%s: skipped %d damaged lines", self.metrics, damaged)
        return records

    def read_provenance(self) -> dict[str, Any]:
        """Provenance of the run; empty if unknown, with a warning if damaged."""
        return read_optional(self.provenance)

    def rewind_metrics(self, step: int) -> None:
        """Drop lines logged after `step` by a killed process."""
        if self.metrics.is_file():
            kept = (record for record in self.read_metrics() if record["step"] <= step)
            write_text(self.metrics, "".join(json.dumps(record) + "\n" for record in kept))


def read_optional(path: Path) -> dict[str, Any]:
    """Fields of an optional JSON file; none if it is missing or damaged."""
    try:
        return dict(read_json(path)) if path.exists() else {}
    except (ValueError, TypeError) as error:
        _log.warning("ignoring %s: %s", path, error)
        return {}


def _logged(line: str) -> dict[str, Any] | None:
    """A line of metrics.jsonl; None if it is damaged."""
    try:
        record: dict[str, Any] = json.loads(line)
        numbers = [value for name, value in record.items() if name != "warning"]
        places = record["step"], record.get("epoch", 0)
    except (ValueError, AttributeError, KeyError, RecursionError):
        return None
    sound = all(type(value) in (int, float) for value in numbers)
    sound = sound and all(0 <= place < MOST for place in places)
    return record if sound and isinstance(record.get("warning", ""), str) else None


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
    """Revision of the checkout that this package is imported from; None when installed."""
    root = Path(__file__).parents[2]
    options = (f"--git-dir={root / '.git'}", f"--work-tree={root}")
    command = ["git", *options, "describe", "--always", "--dirty"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # there is no Git
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
    """A configuration (nested dataclasses) as plain values for YAML and JSON."""
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
    """Flatten nested dicts to dotted names: {"a": {"b": 1}} to {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
