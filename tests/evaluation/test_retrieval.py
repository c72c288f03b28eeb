"""What is near: rankings by hand, and spaces whose dimensions hold known factors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.agreement import chance, retrieve
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder
from mast.evaluation.result import TargetResult
from paper.protocols import retrieval
from paper.protocols.retrieval import MEASURES, Retrieval

BLOCKS = {"class": "color_jitter+grayscale", "bright": "rotate"}


class Factors(nn.Module):
    """Of the test images, "class" in three dimensions and "bright" in two, one block each."""

    operators = ("color_jitter", "grayscale", "rotate", "gaussian_blur")

    def __init__(self, data: EvaluationData) -> None:
        super().__init__()
        labels = [torch.as_tensor(data.test.targets[name]) for name in BLOCKS]
        known_ND = torch.cat([nn.functional.one_hot(label_N) for label_N in labels], dim=1).float()
        self.register_buffer("known_ND", known_ND)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.known_ND  # all images of the set are one batch

    def masks(self) -> Tensor:
        is_class_D = torch.tensor([1.0, 1, 1, 0, 0])
        # "class" is exempt from both colors, "bright" from rotations, nothing from blur.
        return 3 * torch.stack([1 - is_class_D, 1 - is_class_D, is_class_D, torch.ones(5)], dim=1)


def measure(data: EvaluationData, **settings: object) -> dict[str, TargetResult]:
    embedding = Factors(data)
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


def test_what_a_head_reads_is_a_space(
    data: EvaluationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = nn.Linear(3 * data.size**2, 4, bias=False)
    weights = {"rotate": reading.weight.detach()}
    monkeypatch.setattr(retrieval, "head_weights", lambda _: weights)
    found = measure(data)
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


def at_angles(*degrees: float) -> Tensor:
    angle_N = torch.tensor(degrees).deg2rad()
    return torch.stack([angle_N.cos(), angle_N.sin()], dim=1)


def both(*ranked: Tensor, k: int, files_N: Tensor | None = None) -> list[Tensor]:
    """Precision and average precision, each (T, N)."""
    return [retrieve(*ranked, k, files_N, measure) for measure in MEASURES.values()]


def one_target(features_ND: Tensor, *labels: int, k: int = 2) -> list[Tensor]:
    return [of[0] for of in both(features_ND, features_ND, torch.tensor([labels]), k=k)]


def test_pieces_of_one_file_do_not_find_each_other() -> None:
    features_ND = at_angles(0, 10, 30, 70, 80)
    labels, files_N = torch.tensor([0, 0, 0, 1, 0]), torch.tensor([4, 4, 7, 7, 9])
    precision_TN, average_TN = both(features_ND, features_ND, labels[None], k=2, files_N=files_N)
    # In order of nearness: of the first 2, 3, 4; of the third 1, 0, 4; of the fifth 3, 2, 1, 0.
    assert precision_TN[0].tolist() == [1 / 2, 1 / 2, 1, 0, 1 / 2]
    expected = [(1 + 2 / 3) / 2, (1 + 2 / 3) / 2, 1, torch.nan, (1 / 2 + 2 / 3 + 3 / 4) / 3]
    assert average_TN[0].tolist() == pytest.approx(expected, nan_ok=True)
    assert chance(labels, files_N).tolist() == [2 / 3, 2 / 3, 1, 0, 3 / 4]
    few = retrieve(features_ND, features_ND, labels[None], 100, files_N)
    assert few[0].tolist() == [2 / 3, 2 / 3, 1, 0, 3 / 4]  # of all of other files


def test_equals_count_as_they_would_on_average() -> None:
    features_ND = at_angles(0, 0, 20, 20, 20, 60)
    # The first image finds 1, then 2, 3 and 4 at once, then 5.
    shares = {1: 1, 2: (1 + 1 / 3) / 2, 3: (1 + 2 / 3) / 3, 4: 2 / 4, 5: 3 / 5}
    for k, share in shares.items():
        precision_N, average_N = one_target(features_ND, 0, 0, 0, 1, 1, 0, k=k)
        assert float(precision_N[0]) == pytest.approx(share)
        assert float(average_N[0]) == pytest.approx((1 + 2 / 4 + 3 / 5) / 3)
    # Nothing tells these apart: what is found is chance.
    labels = (0, 0, 0, 1, 1, 2)
    precision_N, average_N = one_target(torch.zeros(6, 3), *labels, k=4)
    expected_N = chance(torch.tensor(labels))
    assert expected_N.tolist() == [2 / 5] * 3 + [1 / 5] * 2 + [0]
    torch.testing.assert_close(precision_N, expected_N)
    torch.testing.assert_close(average_N[:5], expected_N[:5])
    assert average_N[5].isnan()  # there is no other like it


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**16), places=st.integers(0, 2), classes=st.integers(1, 4))
def test_average_precision_is_that_of_scikit_learn(seed: int, places: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    queries_ND, gallery_ND = (
        torch.randn(12, 3, generator=generator).mul(2**places).round() + 0.5 for _ in range(2)
    )
    labels_TN = torch.randint(classes, (2, 12), generator=generator)
    precision_TN, average_TN = both(queries_ND, gallery_ND, labels_TN, k=5)
    unit = [torch.nn.functional.normalize(x_ND, dim=1) for x_ND in (queries_ND, gallery_ND)]
    similarity_NN = (unit[0] @ unit[1].T).numpy()
    for at, query in np.ndindex(2, 12):
        others = np.arange(12) != query
        same_M = (labels_TN[at] == labels_TN[at, query]).numpy()[others]
        value = float(average_TN[at, query])
        if same_M.any():
            expected = average_precision_score(same_M, similarity_NN[query, others])
            assert value == pytest.approx(expected)
        else:
            assert np.isnan(value)
        nearest = similarity_NN[query, others].argsort()[::-1][:5]
        if len(np.unique(similarity_NN[query])) == 12:  # no equals
            assert float(precision_TN[at, query]) == pytest.approx(same_M[nearest].mean())
