"""Fabric loggers: TensorBoard, and Weights & Biases (extra `wandb`)."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from mast.core.errors import UserError


def is_installed() -> bool:
    """Whether TensorBoard is installed; a folder of that name, as in a run, does not count."""
    found = find_spec("tensorboard")
    return found is not None and found.origin is not None


class TensorBoardLogger:
    """Writes scalars to an event file; after resuming, it replaces later steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if self._writer is None:
            self._writer = SummaryWriter(self._folder, purge_step=step)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()


class WandbLogger:
    """Sends a run's metrics to a project; a file in the run folder stores the id to resume."""

    def __init__(self, project: str, run: Path) -> None:
        try:
            import wandb
        except ImportError as error:
            raise UserError("wandb: needs `pip install 'mast-ssl[wandb]'`") from error
        self._wandb = wandb
        self._project, self._folder = project, run
        self._run: Any = None

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        if self._run is None:
            file = self._folder / "wandb-id"
            if not file.is_file():
                file.write_text(uuid4().hex)
            self._run = self._wandb.init(
                project=self._project, name=self._folder.name, id=file.read_text(), resume="allow",
                reinit="create_new",
            )  # fmt: skip
        self._run.log(dict(metrics), step=step)
