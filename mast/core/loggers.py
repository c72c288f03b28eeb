"""Fabric loggers: TensorBoard, and Weights & Biases (extra `wandb`)."""

import os
import socket
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from mast.core.errors import UserError
from mast.core.files import writing

VERSION = "brain.Event:2"  # of the files, as their first event says


def is_installed() -> bool:
    """Whether TensorBoard is; a folder of that name, as a run has one, is no package."""
    found = find_spec("tensorboard")
    return found is not None and found.origin is not None


class TensorBoardLogger:
    """Write scalars into an event file of a folder; a new one takes the place of later steps.

    Lightning's logger hands them to a thread, which prints a traceback where the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: Path | None = None

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        with writing(self._folder):
            if self._file is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                begun = f"{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
                self._file = self._folder / f"events.out.tfevents.{begun}"
                self._append(file_version=VERSION)
                self._append(step=step, session_log=SessionLog(status=SessionLog.START))
            self._append(step=step, summary=Summary(value=values))

    def _append(self, **fields: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        assert self._file is not None
        event = Event(wall_time=time.time(), **fields)
        with self._file.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())


class WandbLogger:
    """Send metrics of a run to a project; a file in its folder says which to continue."""

    def __init__(self, project: str, run: Path) -> None:
        try:
            import wandb
        except ImportError as error:
            raise UserError("logging to wandb needs `pip install 'mast-ssl[wandb]'`") from error
        self._wandb = wandb
        self._project, self._folder = project, run
        self._run: Any = None

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        if self._run is None:
            file = self._folder / "wandb-id"
            if not file.is_file():
                with writing(file):
                    file.write_text(uuid4().hex)
            self._run = self._wandb.init(
                project=self._project, name=self._folder.name, id=file.read_text(), resume="allow",
                reinit="create_new",
            )  # fmt: skip
        self._run.log(dict(metrics), step=step)
