"""Protocols that measure an encoder; one file and one row of `EVALUATORS` each."""

from typing import Any

from mast.core.registry import Entry
from mast.evaluation.protocols.evaluator import Evaluator as Evaluator
from mast.evaluation.protocols.finetune import FineTune as FineTune
from mast.evaluation.protocols.knn import Knn
from mast.evaluation.protocols.probe import Linear as Linear
from mast.evaluation.protocols.robust import Robust

EVALUATORS: dict[str, Entry[Evaluator[Any]]] = {
    "knn": Entry("weighted nearest neighbors, tuned on validation", Knn),
    "linear": Entry("logistic regression to its optimum, tuned on validation", Linear),
    "robust": Entry("accuracy under each operator as it grows stronger", Robust),
    "finetune": Entry("fine-tuned on all labels", FineTune),
}
