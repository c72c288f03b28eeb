"""Protocols that measure an encoder; one file and one row of `EVALUATORS` each."""

from typing import Any

from mast.core.registry import Entry
from mast.protocols.detection import Detection, Segmentation
from mast.protocols.ensemble import EmbeddingProbe, Ensemble
from mast.protocols.evaluator import Evaluator
from mast.protocols.fewshot import FewShot
from mast.protocols.finetune import FineTune
from mast.protocols.knn import Knn
from mast.protocols.linear_sgd import LinearSgd
from mast.protocols.probe import Linear
from mast.protocols.retained import Retained
from mast.protocols.retrieval import Retrieval
from mast.protocols.robust import Robust
from mast.protocols.rotation import Rotation
from mast.protocols.semi import Semi
from mast.protocols.svm import Svm

EVALUATORS: dict[str, Entry[Evaluator[Any]]] = {
    "knn": Entry("weighted nearest neighbours, tuned on validation", Knn),
    "linear": Entry("logistic regression to its optimum, tuned on validation", Linear),
    "linear_sgd": Entry("a linear layer by SGD on cropped and flipped views", LinearSgd),
    "fewshot": Entry("a few labels a class, and episodes of a few classes", FewShot),
    "rotation": Entry("which of four ways up an image is; needs no labels", Rotation),
    "robust": Entry("accuracy under each operator as it grows stronger", Robust),
    "retained": Entry("what a task loses where an operator acts on half of all images", Retained),
    "svm": Entry("several classes an image: a linear SVM a class, scored by mAP", Svm),
    "semi": Entry("fine-tuned on a few per cent of the labels", Semi),
    "finetune": Entry("fine-tuned on all labels", FineTune),
    "ensemble": Entry("`linear` on MAST's masked embeddings or LooC's heads", Ensemble),
    "embedding": Entry("`linear` on the embedding, and what each subspace keeps", EmbeddingProbe),
    "retrieval": Entry("what the nearest images share, by the invariances chosen", Retrieval),
    "detection": Entry("Faster R-CNN: average precision of boxes", Detection),
    "segmentation": Entry("Mask R-CNN: average precision of boxes and masks", Segmentation),
}

__all__ = [
    "EVALUATORS",
    "Detection",
    "EmbeddingProbe",
    "Ensemble",
    "Entry",
    "Evaluator",
    "FewShot",
    "FineTune",
    "Knn",
    "Linear",
    "LinearSgd",
    "Retained",
    "Retrieval",
    "Robust",
    "Rotation",
    "Segmentation",
    "Semi",
    "Svm",
]
