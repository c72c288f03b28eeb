"""What is near in a space whose dimensions hold known factors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder
from mast.evaluation.result import TargetResult
from paper.protocols.retrieval import Retrieval

BLOCKS = {"class": "color_jitter+grayscale", "bright": "rotate"}


class Factors(nn.Module):
    """Of the test images, "class" in three dimensions and "bright" in two, one block each."""

    operators = ("color_jitter", "grayscale", "rotate", "gaussian_blur")

    def __init__(self, data: EvaluationData) -> None:
        super().__init__()
        labels = [torch.as_tensor(data.test.targets[name]) for name in BLOCKS]
        known_ND = torch.cat([nn.functional.one_hot(label_N) for label_N in labels], dim=1).float()
        self.register_buffer("known_ND", known_ND)
        self.read: dict[str, Tensor] = {}

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.known_ND  # all images of the set are one batch

    def head_weights(self) -> dict[str, Tensor]:
        return self.read

    def masks(self) -> Tensor:
        is_class_D = torch.tensor([1.0, 1, 1, 0, 0])
        # "class" is exempt from both colors, "bright" from rotations, nothing from blur.
        return 3 * torch.stack([1 - is_class_D, 1 - is_class_D, is_class_D, torch.ones(5)], dim=1)


def measure(
    data: EvaluationData, read: dict[str, Tensor] | None = None, **settings: object
) -> dict[str, TargetResult]:
    embedding = Factors(data)
    embedding.read = read or {}
    common = EvaluationSettings(protocols={"retrieval": {"k": 3, **settings}})
    encoder = FrozenEncoder(nn.Flatten(), representations=lambda _: FrozenEncoder(embedding))
    (result,) = evaluate_encoder(encoder, data, "retrieval", common)
    return result.targets


def test_the_right_block_finds_all_and_the_other_chance(data: EvaluationData) -> None:
    found = measure(data)
    spaces = ["representation", "embedding"]
    spaces += [f"{verb}_{block}" for block in BLOCKS.values() for verb in ("match", "ignore")]
    for target, measured in found.items():
        assert list(measured.each) == [
            f"{measure}_{space}" for space in spaces for measure in ("precision", "mAP")
        ]
        values = measured.values
        assert values["chance"] == pytest.approx(100 * (7 / 23 if target == "class" else 11 / 23))
        for name, block in BLOCKS.items():
            # What one block leaves out is the other.
            right, wrong = ("match", "ignore") if name == target else ("ignore", "match")
            assert values[f"precision_{right}_{block}"] == pytest.approx(100)
            assert values[f"mAP_{right}_{block}"] == pytest.approx(100)
            # Factors are nearly independent: one says next to nothing of the other.
            assert values[f"precision_{wrong}_{block}"] == pytest.approx(values["chance"], abs=6)


def test_what_a_head_reads_is_a_space(data: EvaluationData) -> None:
    reading = nn.Linear(3 * data.size**2, 4, bias=False)
    found = measure(data, {"rotate": reading.weight.detach()})
    read = FrozenEncoder(nn.Sequential(nn.Flatten(), reading))
    settings = EvaluationSettings(protocols={"retrieval": {"k": 3}})
    (expected,) = evaluate_encoder(read, data, "retrieval", settings)
    for target, measured in expected.targets.items():
        for measure_of in ("precision_", "mAP_"):
            representation = measured.values[f"{measure_of}representation"]
            assert found[target].values[f"{measure_of}told_rotate"] == representation


def test_queries_alone_in_their_class_are_left_out(
    encoder: nn.Module, data: EvaluationData
) -> None:
    def found(*labels: int) -> dict[str, Any]:
        test = replace(data.test.subset(range(len(labels))), targets={"class": np.array(labels)})
        return dict(Retrieval().run(FrozenEncoder(encoder), replace(data, test=test)))

    assert len(found(0, 0, 0, 1)["class/each/mAP_representation"]) == 3
    assert found(0, 0, 1, 1)["class/chance"] == pytest.approx(100 / 3)
    assert found(0, 0, 0, 1)["class/chance"] == pytest.approx(200 / 3)
    with pytest.raises(UserError, match="no two test images have the same class"):
        found(0, 1, 2)
