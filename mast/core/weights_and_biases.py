"""A Fabric logger for Weights & Biases (extra `wandb`)."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from lightning_fabric.loggers.logger import Logger
from lightning_fabric.utilities.rank_zero import rank_zero_only

from mast.core.errors import UserError


class WandbLogger(Logger):
    """Send metrics to a project.

    Args:
        project: Name of the project.
        run: Name of the run; the same name continues it.

    Raises:
        UserError: The package wandb is not installed.
    """

    def __init__(self, project: str, run: str) -> None:
        try:
            import wandb
        except ImportError as error:
            raise UserError("logging to wandb needs `pip install 'mast-ssl[wandb]'`") from error
        self._wandb = wandb
        self._project, self._run_name = project, run
        self._run: Any = None

    @property
    def name(self) -> str:
        """The project."""
        return self._project

    @property
    def version(self) -> str:
        """The run."""
        return self._run_name

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log scalars at a step."""
        if self._run is None:
            self._run = self._wandb.init(
                project=self._project, name=self._run_name, id=self._run_name, resume="allow"
            )
        self._run.log(dict(metrics), step=step)

    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """The configuration is in the run folder."""
