"""Do the probes agree? Three of them on three encoders, and one against scikit-learn."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, final

import torch

from mast.analyses import Grid
from mast.core.run import RunFolder
from mast.core.seeds import forked
from mast.encoders.extract import extract
from mast.evaluation.compare import compare
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder
from mast.evaluation.result import Result
from mast.models import Encoder, EncoderConfig
from paper.experiment import CIFAR, NARROW, SIZE, Experiment, Measured, Workplace, link_cifar
from paper.studies.engine import StudyRun

RANDOM = "resnet18-random"
RECIPES = ("vicreg5_small", "mast_c5_distance_small")
PROTOCOLS = ("knn", "linear", "linear_sgd")


@final
@dataclass(frozen=True)
class Protocols(Experiment):
    """CIFAR-10: a random ResNet-18 and two runs of minutes, by kNN, L-BFGS and SGD.

    The L-BFGS probe of the last run is also compared with scikit-learn's `LogisticRegression` at
    the penalty that validation chose. It needs `cifar10/{train,test}`.
    """

    results: ClassVar[str] = "protocols"

    images: int = 10_000
    epochs: int = 5
    batch_size: int = 64
    encoder: Mapping[str, Any] = field(default_factory=lambda: NARROW)
    settings: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: {"linear_sgd": {"epochs": 3, "learning_rates": [0.2, 2.0, 20.0]}}
    )

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        configs = {
            f"{recipe}-cifar10": workplace.configure(
                f"{recipe}-cifar10",
                recipe,
                workplace.derived(CIFAR),
                size=SIZE,
                epochs=self.epochs,
                batch_size=self.batch_size,
                encoder=dict(self.encoder),
            )
            for recipe in RECIPES
        }
        runs = [StudyRun(name, {"recipe": c.recipe}, c) for name, c in configs.items()]
        return [StudyRun(RANDOM, {"trained": "no"}, trained=False), *runs]

    def prepare(self, workplace: Workplace) -> None:
        link_cifar(workplace, self.images)
        workplace.open("cifar10/test", SIZE)

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        """The result files of the encoder are beside its result."""
        encoder = _random_resnet18() if run.name == RANDOM else workplace.encoder(run)
        train, test = (workplace.open(f"cifar10/{part}", SIZE) for part in ("train", "test"))
        data = EvaluationData(train, None, test, SIZE)
        description = {"source": run.name, **encoder.describe()}
        results = [
            # Named as below the folder of sets, wherever that is.
            replace(result, set_name="cifar10/test", encoder=description)
            for result in evaluate_encoder(
                encoder, data, PROTOCOLS, EvaluationSettings(protocols=self.settings)
            )
        ]
        for result in results:
            result.write(self._folder(run.name, workplace))
        measured: Measured = {
            "top1": {each.protocol: each.targets["class"].values["top1"] for each in results}
        }
        if run.name.startswith(RECIPES[-1]):
            linear = results[PROTOCOLS.index("linear")]
            measured["agreement with scikit-learn"] = against_sklearn(encoder, data, linear)
        return measured

    def conclude(self, measured: Mapping[str, Measured], workplace: Workplace) -> Measured:
        """The encoders compared, all with the first."""
        compared = compare([self._folder(name, workplace) for name in measured])
        (agreement,) = filter(
            None, (each.get("agreement with scikit-learn") for each in measured.values())
        )
        return {
            "agreement with scikit-learn": agreement,
            "runs": list(compared.runs),
            "notes": list(compared.notes),
            "rows": [
                {
                    "measure": " ".join(row.heading),
                    "values": list(row.values),
                    "gains": [gain and [gain.value, gain.low, gain.high] for gain in row.gains],
                }
                for row in compared.rows
            ],
        }

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """Top-1, one row per encoder."""
        rows = tuple(
            (name, *(f"{each['top1'][protocol]:.1f}" for protocol in PROTOCOLS))
            for name, each in measured.items()
        )
        return Grid(("encoder", *PROTOCOLS), rows)

    def _folder(self, name: str, workplace: Workplace) -> Path:
        return RunFolder(workplace.out / self.results / name).path


def _random_resnet18() -> Encoder:
    """torchvision's ResNet-18 as it starts, with its own stem."""
    with forked():
        torch.manual_seed(0)
        return Encoder(EncoderConfig("torchvision:resnet18", stem="standard"), SIZE).eval()


def against_sklearn(
    encoder: torch.nn.Module, data: EvaluationData, linear: Result
) -> dict[str, float]:
    """Top-1 of our optimum, as `linear` has it, and of scikit-learn's at the penalty it chose."""
    from sklearn.linear_model import LogisticRegression

    train_ND, test_MD = (
        extract(encoder, part, data.size).double().numpy() for part in (data.train, data.test)
    )
    chosen = linear.targets["class"].chosen["penalty"]
    model = LogisticRegression(C=1 / (len(train_ND) * chosen), tol=1e-7, max_iter=5000)
    started = time.monotonic()
    model.fit(train_ND, data.train.targets["class"])
    seconds = time.monotonic() - started
    return {
        "penalty": chosen,
        "ours": linear.targets["class"].values["top1"],
        "scikit-learn": 100 * float(model.score(test_MD, data.test.targets["class"])),
        "iterations of scikit-learn": int(model.n_iter_.max()),
        "seconds of scikit-learn": seconds,
    }
