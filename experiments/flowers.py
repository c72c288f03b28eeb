"""The main job on real photos: Flowers-17, beside the encoder as it started."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from mast.analyses import Grid
from mast.evaluation.intervals import BOOTSTRAP
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import evaluate_encoder
from paper.experiment import Experiment, Measured, Workplace, last_metrics
from paper.studies.engine import StudyRun

PROTOCOLS = ("knn", "linear")
PARTS = ("train", "val", "test")


@final
@dataclass(frozen=True)
class Flowers(Experiment):
    """A run on Flowers-17's training images beside its untrained encoder.

    The validation set tunes the probes, the test set is scored. It needs
    `flowers17/{train,val,test}`.
    """

    results: ClassVar[str] = "flowers17"

    recipe: str = "mast_c5_distance_small"
    changes: Mapping[str, Any] = field(default_factory=lambda: {"epochs": 30, "batch_size": 64})

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        data = workplace.sets / "flowers17" / "train"
        config = workplace.configure("flowers", self.recipe, data, **self.changes)
        return [
            StudyRun("untrained", {"trained": "no"}, config, trained=False),
            StudyRun(self.recipe, {}, config),
        ]

    def prepare(self, workplace: Workplace) -> None:
        self._data(workplace, 64)

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        """Top-1 and its interval by protocol."""
        assert run.config is not None
        results = evaluate_encoder(
            workplace.encoder(run), self._data(workplace, run.config.size), PROTOCOLS
        )
        keys = ("top1", "top1_low", "top1_high")
        measured: Measured = {
            "encoder": run.name if run.trained else f"untrained {run.config.encoder.name}",
            "scores": {
                result.protocol: {
                    **{key: result.targets["class"].values[key] for key in keys},
                    "interval_by": result.targets["class"].intervals["top1"],
                }
                for result in results
            },
        }
        if run.trained:
            threads = json.loads(run.folder.provenance.read_text())["threads"]
            minutes = last_metrics(run.folder)["seconds"] / 60
            measured |= {"commands": self._commands(run), "minutes": minutes, "threads": threads}
        return measured

    def conclude(self, measured: Mapping[str, Measured], workplace: Workplace) -> Measured:
        """Both encoders, and what the run took."""
        trained = measured[self.recipe]
        return {
            "commands": trained["commands"],
            "encoders": {each["encoder"]: each["scores"] for each in measured.values()},
            "minutes": trained["minutes"],
            "threads": trained["threads"],
        }

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """One row per encoder and protocol."""
        rows = tuple(
            (
                each["encoder"], protocol, f"{values['top1']:.1f}",
                f"{values['top1_low']:.1f} to {values['top1_high']:.1f}",
                values.get("interval_by", BOOTSTRAP),  # the only one when results did not name it
            )
            for each in measured.values()
            for protocol, values in each["scores"].items()
        )  # fmt: skip
        return Grid(("encoder", "protocol", "test top-1", "95 % interval", "interval by"), rows)

    def _data(self, workplace: Workplace, size: int) -> EvaluationData:
        train, val, test = (workplace.open(f"flowers17/{part}", size) for part in PARTS)
        return EvaluationData(train, val, test, size)

    def _commands(self, run: StudyRun) -> list[str]:
        """How the same is had without the study."""
        assert run.config is not None
        return [
            f"mast pretrain flowers17/train --recipe {run.config.recipe} "
            f"--epochs {run.config.epochs} --batch_size {run.config.batch_size} "
            "--out runs/flowers",
            f"mast evaluate runs/flowers --data flowers17 --protocols {' '.join(PROTOCOLS)}",
        ]
