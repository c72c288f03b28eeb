"""Protocols of the paper that users of a library seldom ask for: a file and a row each."""

from typing import Any

from mast.core.registry import Entry
from mast.evaluation.protocols import EVALUATORS, Evaluator
from paper.protocols.detection import Detection, Segmentation
from paper.protocols.embedding import EmbeddingProbe
from paper.protocols.ensemble import Ensemble
from paper.protocols.fewshot import FewShot
from paper.protocols.linear_sgd import LinearSgd
from paper.protocols.retained import Retained
from paper.protocols.retrieval import Retrieval
from paper.protocols.rotation import Rotation
from paper.protocols.semi import Semi
from paper.protocols.svm import Svm

PROTOCOLS: dict[str, Entry[Evaluator[Any]]] = {
    "retained": Entry("accuracy lost when an operator changes half of the images", Retained),
    "linear_sgd": Entry("a linear layer by SGD on cropped and flipped views", LinearSgd),
    "fewshot": Entry("a few labels per class, and episodes of a few classes", FewShot),
    "retrieval": Entry("what the nearest images share, by the invariances chosen", Retrieval),
    "embedding": Entry("`linear` on the embedding, then masked to each subspace", EmbeddingProbe),
    "ensemble": Entry("`linear` on the parts of a method: MAST's masked embeddings", Ensemble),
    "rotation": Entry("which of four rotations an image has; needs no labels", Rotation),
    "svm": Entry("several classes per image: one linear SVM per class, scored by mAP", Svm),
    "semi": Entry("fine-tuned on a few percent of the labels", Semi),
    "detection": Entry("Faster R-CNN: average precision of boxes", Detection),
    "segmentation": Entry("Mask R-CNN: average precision of boxes and masks", Segmentation),
}


def register() -> None:
    """Add them to those of `mast evaluate`."""
    EVALUATORS.update(PROTOCOLS)
