"""Rankings of a set by its own images, against those worked out by hand and scikit-learn's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from torch import Tensor

from mast.evaluation.agreement import Retrieved, chance, retrieve


def at_angles(*degrees: float) -> Tensor:
    angle_N = torch.tensor(degrees).deg2rad()
    return torch.stack([angle_N.cos(), angle_N.sin()], dim=1)


def one_target(features_ND: Tensor, *labels: int, k: int = 2) -> Retrieved:
    found = retrieve(features_ND, features_ND, torch.tensor([labels]), k)
    return Retrieved(*(value_TN[0] for value_TN in found))


def test_pieces_of_one_file_do_not_find_each_other() -> None:
    features_ND = at_angles(0, 10, 30, 70, 80)
    labels, files_N = torch.tensor([0, 0, 0, 1, 0]), torch.tensor([4, 4, 7, 7, 9])
    found = retrieve(features_ND, features_ND, labels[None], 2, files_N)
    # In order of nearness: of the first 2, 3, 4; of the third 1, 0, 4; of the fifth 3, 2, 1, 0.
    assert found.precision[0].tolist() == [1 / 2, 1 / 2, 1, 0, 1 / 2]
    expected = [(1 + 2 / 3) / 2, (1 + 2 / 3) / 2, 1, torch.nan, (1 / 2 + 2 / 3 + 3 / 4) / 3]
    assert found.average_precision[0].tolist() == pytest.approx(expected, nan_ok=True)
    assert chance(labels, files_N).tolist() == [2 / 3, 2 / 3, 1, 0, 3 / 4]
    few = retrieve(features_ND, features_ND, labels[None], 100, files_N)
    assert few.precision[0].tolist() == [2 / 3, 2 / 3, 1, 0, 3 / 4]  # of all of other files


def test_equals_count_as_they_would_on_average() -> None:
    features_ND = at_angles(0, 0, 20, 20, 20, 60)
    # The first image finds 1, then 2, 3 and 4 at once, then 5.
    shares = {1: 1, 2: (1 + 1 / 3) / 2, 3: (1 + 2 / 3) / 3, 4: 2 / 4, 5: 3 / 5}
    for k, share in shares.items():
        found = one_target(features_ND, 0, 0, 0, 1, 1, 0, k=k)
        assert float(found.precision[0]) == pytest.approx(share)
        assert float(found.average_precision[0]) == pytest.approx((1 + 2 / 4 + 3 / 5) / 3)
    # Nothing tells these apart: what is found is chance.
    labels = (0, 0, 0, 1, 1, 2)
    found = one_target(torch.zeros(6, 3), *labels, k=4)
    expected_N = chance(torch.tensor(labels))
    assert expected_N.tolist() == [2 / 5] * 3 + [1 / 5] * 2 + [0]
    torch.testing.assert_close(found.precision, expected_N)
    torch.testing.assert_close(found.average_precision[:5], expected_N[:5])
    assert found.average_precision[5].isnan()  # there is no other like it


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**16), places=st.integers(0, 2), classes=st.integers(1, 4))
def test_average_precision_is_that_of_scikit_learn(seed: int, places: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    queries_ND, gallery_ND = (
        torch.randn(12, 3, generator=generator).mul(2**places).round() + 0.5 for _ in range(2)
    )
    labels_TN = torch.randint(classes, (2, 12), generator=generator)
    found = retrieve(queries_ND, gallery_ND, labels_TN, 5)
    unit = [torch.nn.functional.normalize(x_ND, dim=1) for x_ND in (queries_ND, gallery_ND)]
    similarity_NN = (unit[0] @ unit[1].T).numpy()
    for at, query in np.ndindex(2, 12):
        others = np.arange(12) != query
        same_M = (labels_TN[at] == labels_TN[at, query]).numpy()[others]
        value = float(found.average_precision[at, query])
        if same_M.any():
            expected = average_precision_score(same_M, similarity_NN[query, others])
            assert value == pytest.approx(expected)
        else:
            assert np.isnan(value)
        nearest = similarity_NN[query, others].argsort()[::-1][:5]
        if len(np.unique(similarity_NN[query])) == 12:  # no equals
            assert float(found.precision[at, query]) == pytest.approx(same_M[nearest].mean())
