"""What lies beside the encoder: the ensemble holds both halves, a subspace its own classes."""

import pytest
import torch
from tiny_evaluation import complete
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.measure.frozen import Bench, FrozenEncoder
from mast.measure.sets import EvaluationData
from mast.protocols import EmbeddingProbe, Ensemble, Linear


def test_the_ensemble_knows_what_its_parts_know(encoder: nn.Module, data: EvaluationData) -> None:
    whole = complete(encoder)
    ensemble = dict(Ensemble(max_iterations=50, resamples=50).run(whole, data))
    alone = dict(Linear(max_iterations=50, resamples=50).run(whole, data))
    # The two masked halves side by side are the same numbers, each once.
    assert ensemble["class/top1"] == pytest.approx(alone["class/top1"], abs=1e-6)


class Halves(nn.Module):
    """An embedding that shows the class in its first half alone."""

    operators = ("first", "second")

    def forward(self, images_BCHW: Tensor) -> Tensor:
        mean_BC = images_BCHW.mean(dim=(2, 3))
        return torch.cat([mean_BC, torch.zeros_like(mean_BC)], dim=1)

    def masks(self) -> Tensor:
        return torch.eye(2).repeat_interleave(3, dim=0) * 5.0


def test_the_subspace_that_a_task_needs_predicts_its_classes(
    encoder: nn.Module, data: EvaluationData
) -> None:
    whole = FrozenEncoder(encoder, bench=Bench(representations=lambda _: FrozenEncoder(Halves())))
    values = dict(EmbeddingProbe(max_iterations=200).run(whole, data))
    assert values["class/top1"] > 90
    assert values["class/prediction_first"] > 60
    # Without its half the probe sees the mean embedding at most: about chance for three classes.
    assert values["class/prediction_second"] < 50
    # Another run is right about other images: there is nothing to pair.
    assert "class/each/prediction_first" not in values


def test_an_encoder_alone_has_no_embedding(encoder: nn.Module, data: EvaluationData) -> None:
    with pytest.raises(UserError, match="the ensemble needs a run folder"):
        list(Ensemble().run(FrozenEncoder(encoder), data))
