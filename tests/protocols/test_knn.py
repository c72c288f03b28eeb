"""The kNN protocol."""

from dataclasses import replace

from torch import nn

from mast.measure.sets import EvaluationData
from mast.protocols.run import EvaluationSettings, evaluate_encoder


def test_neighbours_are_clipped_to_the_training_set(
    encoder: nn.Module, data: EvaluationData
) -> None:
    labels = data.train.targets["class"]
    few = data.train.subset([int((labels == label).argmax()) for label in range(3)])
    few = replace(few, targets={"class": few.targets["class"]})
    settings = EvaluationSettings(protocols={"knn": {"neighbours": (200,)}})
    (result,) = evaluate_encoder(encoder, replace(data, train=few), ["knn"], settings)
    assert result.targets["class"].chosen["k"] == 3  # clipped to the images there were
