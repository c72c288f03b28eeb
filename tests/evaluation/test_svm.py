"""The SVMs against scikit-learn's pipeline, and their average precision."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC
from torch import nn

from mast.core.errors import UserError
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from paper.protocols.svm import Svm, average_precision

COSTS = (0.01, 0.1, 1)


def measure(encoder: nn.Module, data: EvaluationData, **changes: object) -> dict[str, object]:
    svm = Svm(**{"costs": COSTS, "resamples": 50, **changes})  # type: ignore[arg-type]
    return dict(svm.run(FrozenEncoder(encoder), data))


def test_equals_the_pipeline_of_sklearn(encoder: nn.Module, data: EvaluationData) -> None:
    values = measure(encoder, data)
    frozen = FrozenEncoder(encoder)
    pool, test = (
        F.normalize(features, dim=1).numpy()
        for features in (frozen.pool_features(data.pool, 16), frozen.features(data.test, 16))
    )
    areas, points, costs = [], [], []
    for at, name in enumerate(data.train.classes["shows"]):
        label = np.concatenate([part.multilabels["shows"][:, at] for part in data.pool])
        truth = data.test.multilabels["shows"][:, at]
        svm = LinearSVC(class_weight={1: 2, -1: 1}, max_iter=2000, dual=True, random_state=0)
        search = GridSearchCV(svm, {"C": COSTS}, scoring="average_precision", cv=3)
        search.fit(pool[label >= 0], np.where(label[label >= 0] == 1, 1, -1))
        scores = search.decision_function(test[truth >= 0])
        expected = average_precision(
            torch.from_numpy(scores), torch.from_numpy(truth[truth >= 0] == 1)
        )
        areas.append(100 * float(expected.area))
        points.append(100 * float(expected.eleven_point))
        costs.append(search.best_params_["C"])
        # The envelope never lies below scikit-learn's steps.
        assert areas[-1] >= 100 * average_precision_score(truth[truth >= 0] == 1, scores) - 1e-9
        assert values[f"shows/map_area/{name}"] == pytest.approx(areas[-1])
    assert values["shows/map_area"] == pytest.approx(np.mean(areas))
    assert values["shows/map_11_point"] == pytest.approx(np.mean(points))
    assert values["shows/chosen/median_cost"] == np.median(costs)
    assert values["shows/map_area_low"] <= values["shows/map_area"] <= values["shows/map_area_high"]


def test_classes_that_nothing_can_be_said_of_are_left_out_and_unfinished_fits_counted(
    encoder: nn.Module, data: EvaluationData, caplog: pytest.LogCaptureFixture
) -> None:
    measure(encoder, data, max_iterations=1)
    assert "4 of 4 SVMs of shows did not converge in 1 iterations" in caplog.text
    shows = data.train.multilabels["shows"].copy()
    shows[:, 0] = 0  # not in the training set
    once = np.flatnonzero(shows[:, 1] == 1)
    shows[once[1:], 1] = 0  # a single image: nothing can be held out
    few = replace(data, train=replace(data.train, multilabels={"shows": shows}), val=None)
    values = measure(encoder, few)
    assert values["shows/chosen/classes"] == 3
    assert "shows/map_area/color0" not in values
    assert "shows/map_area/color1" in values
    everywhere = data.test.multilabels["shows"].copy()
    everywhere[:, 2] = 1  # any ranking of it is perfect
    test = replace(data.test, multilabels={"shows": everywhere})
    assert "shows/map_area/color2" not in measure(encoder, replace(data, test=test))


def test_sets_without_several_labels_are_refused(encoder: nn.Module, data: EvaluationData) -> None:
    plain = replace(data, train=replace(data.train, multilabels={}))
    with pytest.raises(UserError, match="no labels of several classes"):
        measure(encoder, plain)
    none = replace(data.train, multilabels={"shows": 0 * data.train.multilabels["shows"]})
    with pytest.raises(UserError, match="no class of 'shows' is shown by some images"):
        measure(encoder, replace(data, train=none, val=None))


@pytest.mark.parametrize(
    ("score", "present", "area", "eleven_point"),
    [
        # Found at ranks 1, 3 and 6 of six: precisions 1, 2/3 and 1/2 at recalls 1/3, 2/3 and 1;
        # recalls 0 to .3 reach 1, .4 to .6 reach 2/3, .7 to 1 reach 1/2.
        ([9, 8, 7, 6, 5, 4], [1, 0, 1, 0, 0, 1], (1 + 2 / 3 + 1 / 2) / 3, (4 + 2 + 2) / 11),
        # Precisions 1/2, 2/3 and 3/4: the last is best.
        ([5, 4, 3, 2, 1], [0, 1, 1, 1, 0], 3 / 4, 3 / 4),
        # Equal scores enter together: two of four at recall 2/3, then three of five.
        ([1, 1, 1, 1, 0], [0, 0, 1, 1, 1], 3 / 5, 3 / 5),
        ([1, 1, 1, 1, 0], [1, 1, 0, 0, 1], 3 / 5, 3 / 5),
    ],
)
def test_average_precision_by_hand(
    score: list[float], present: list[int], area: float, eleven_point: float
) -> None:
    found = average_precision(torch.tensor(score).float(), torch.tensor(present).bool())
    assert float(found.area) == pytest.approx(area)
    assert float(found.eleven_point) == pytest.approx(eleven_point)


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, 3)), min_size=1))
def test_counting_an_image_twice_is_showing_it_twice(rows: list[tuple[int, bool, int]]) -> None:
    score, present, count = (np.array(column) for column in zip(*rows, strict=True))
    drawn = average_precision(
        torch.from_numpy(score).double(),
        torch.from_numpy(present.astype(bool)),
        torch.from_numpy(count)[None].float(),
    )
    score, present = np.repeat(score, count), np.repeat(present, count)
    if not present.any():
        assert drawn.area.isnan()
        return
    shown = average_precision(torch.from_numpy(score).double(), torch.from_numpy(present))
    assert float(drawn.area) == pytest.approx(float(shown.area))
    assert float(drawn.eleven_point) == pytest.approx(float(shown.eleven_point))
