"""Protocols that measure an encoder; one file and one line of `EVALUATORS` each."""

from typing import Any

from mast.protocols.detection import Detection, Segmentation
from mast.protocols.ensemble import EmbeddingProbe, Ensemble
from mast.protocols.evaluator import Evaluator
from mast.protocols.fewshot import FewShot
from mast.protocols.finetune import FineTune
from mast.protocols.knn import Knn
from mast.protocols.linear import Linear
from mast.protocols.linear_sgd import LinearSgd
from mast.protocols.retained import Retained
from mast.protocols.robust import Robust
from mast.protocols.rotation import Rotation
from mast.protocols.semi import Semi
from mast.protocols.svm import Svm

EVALUATORS: dict[str, type[Evaluator[Any]]] = {
    "knn": Knn,
    "linear": Linear,
    "linear_sgd": LinearSgd,
    "fewshot": FewShot,
    "rotation": Rotation,
    "robust": Robust,
    "retained": Retained,
    "svm": Svm,
    "semi": Semi,
    "finetune": FineTune,
    "ensemble": Ensemble,
    "embedding": EmbeddingProbe,
    "detection": Detection,
    "segmentation": Segmentation,
}

__all__ = [
    "EVALUATORS",
    "Detection",
    "EmbeddingProbe",
    "Ensemble",
    "Evaluator",
    "FewShot",
    "FineTune",
    "Knn",
    "Linear",
    "LinearSgd",
    "Retained",
    "Robust",
    "Rotation",
    "Segmentation",
    "Semi",
    "Svm",
]
