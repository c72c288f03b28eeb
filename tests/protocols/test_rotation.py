"""The rotation probe: what sees up from down scores, what cannot scores chance."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mast.data import CanvasSet
from mast.data.cache import InMemory
from mast.measure.sets import EvaluationData
from mast.protocols.rotation import rotated_by
from mast.protocols.run import EvaluationSettings, evaluate_encoder

QUICK = EvaluationSettings(protocols={"rotation": {"max_iterations": 50}})


def skies(count: int, seed: int) -> CanvasSet:
    """Bright above, dark below, with noise; no labels."""
    draw = np.random.default_rng(seed)
    images = np.linspace(220, 30, 16)[:, None, None] + 20 * draw.standard_normal((count, 16, 16, 3))
    return CanvasSet(
        name=f"skies@{seed}",
        pixels=InMemory.of(images.clip(0, 255).astype(np.uint8)),
        aspect_N=np.ones(count, np.float32),
        targets={},
        classes={},
        identifiers=tuple(map(str, range(count))),
        fingerprint=str(seed),
    )


class Halves(nn.Module):
    """Mean brightness above, below, left and right, or of the whole image alone."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, images_BCHW: Tensor) -> Tensor:
        gray_BHW = images_BCHW.mean(dim=1)
        if self.whole:
            return gray_BHW.mean(dim=(1, 2))[:, None]
        rows_BH, columns_BW = gray_BHW.mean(dim=2), gray_BHW.mean(dim=1)
        halves = (rows_BH[:, :8], rows_BH[:, 8:], columns_BW[:, :8], columns_BW[:, 8:])
        return torch.stack([half.mean(dim=1) for half in halves], dim=1)


@pytest.fixture
def unlabelled() -> EvaluationData:
    return EvaluationData(skies(40, 0), skies(12, 1), skies(16, 2), 16)


@pytest.mark.parametrize("with_validation", [True, False])
def test_orientation_is_seen_where_it_can_be(
    with_validation: bool, unlabelled: EvaluationData
) -> None:
    data = unlabelled if with_validation else replace(unlabelled, val=None)
    for whole, low, high in ((False, 99.0, 100.0), (True, 5.0, 45.0)):
        (result,) = evaluate_encoder(Halves(whole), data, ["rotation"], QUICK)
        values = result.targets["rotation"].values
        assert low <= values["top1"] <= high
        assert values["top1_low"] <= values["top1"] <= values["top1_high"]


def test_turns_are_counterclockwise_quarters() -> None:
    images = torch.arange(4.0).view(1, 1, 2, 2)  # 0 1 / 2 3
    assert rotated_by(0) is None
    quarter = rotated_by(90)
    assert quarter is not None
    assert quarter.apply(images, torch.arange(1)).flatten().tolist() == [1, 3, 0, 2]


def test_copies_of_an_image_are_never_split(unlabelled: EvaluationData) -> None:
    from mast.protocols import Rotation

    task = Rotation()._task(replace(unlabelled, val=None))
    assert len(task.fit_F) + len(task.choose_V) == 4 * 40
    assert not set((task.fit_F % 40).tolist()) & set((task.choose_V % 40).tolist())
    for positions in (task.fit_F, task.choose_V):
        assert torch.equal(
            task.pool_labels_N[positions].bincount(), torch.full((4,), len(positions) // 4)
        )
