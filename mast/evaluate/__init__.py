"""Protocols that measure a frozen encoder; one file and one line of `EVALUATORS` each."""

from typing import Any

from mast.evaluate.compare import Comparison, compare
from mast.evaluate.data import EvaluationData, ObjectData, image_identity
from mast.evaluate.ensemble import EmbeddingProbe, Ensemble
from mast.evaluate.features import extract
from mast.evaluate.fewshot import FewShot
from mast.evaluate.finetune import FineTune
from mast.evaluate.frozen import FrozenEncoder
from mast.evaluate.knn import Knn, knn_accuracy
from mast.evaluate.linear import Linear
from mast.evaluate.linear_sgd import LinearSgd
from mast.evaluate.objects import Detection, Segmentation
from mast.evaluate.online import online_scores
from mast.evaluate.protocol import Evaluator
from mast.evaluate.result import Result, TargetResult, tables
from mast.evaluate.retained import Retained
from mast.evaluate.robust import Robust
from mast.evaluate.rotation import Rotation
from mast.evaluate.run import EvaluationSettings, evaluate_encoder
from mast.evaluate.semi import Semi
from mast.evaluate.spectrum import effective_rank
from mast.evaluate.store import FeatureStore, fingerprint
from mast.evaluate.svm import Svm

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
    "Comparison",
    "Detection",
    "EmbeddingProbe",
    "Ensemble",
    "EvaluationData",
    "EvaluationSettings",
    "Evaluator",
    "FeatureStore",
    "FewShot",
    "FineTune",
    "FrozenEncoder",
    "Knn",
    "Linear",
    "LinearSgd",
    "ObjectData",
    "Result",
    "Retained",
    "Robust",
    "Rotation",
    "Segmentation",
    "Semi",
    "Svm",
    "TargetResult",
    "compare",
    "effective_rank",
    "evaluate_encoder",
    "extract",
    "fingerprint",
    "image_identity",
    "knn_accuracy",
    "online_scores",
    "tables",
]
