"""The closed form in NumPy, as the manual prints it, and as a transformer of scikit-learn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import mast
from mast.invariance.subspaces import Subspaces

METHOD = Path(__file__).parents[2] / "docs" / "method.md"
WIDTHS = (5, 12)
OPERATORS = ("color_jitter", "rotate", "gaussian_blur")


def features(images: int = 40) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Features of images and of one changed copy of each by operator, in float64."""
    draw = np.random.default_rng(0)
    x_NF = draw.normal(size=(images, sum(WIDTHS))) * np.repeat((1.0, 7.0), WIDTHS)
    moved = {name: draw.normal(size=(3, sum(WIDTHS))) for name in OPERATORS}
    changed = {
        name: x_NF + draw.normal(size=(images, 3)) @ axes_RF for name, axes_RF in moved.items()
    }
    return x_NF, changed


def test_the_manual_computes_what_search_computes() -> None:
    section = METHOD.read_text().partition("## In closed form")[2]
    numpy_: dict[str, Any] = {}
    exec(section.partition("```python\n")[2].partition("```")[0], numpy_)
    x_NF, changed = features()
    mean_F, scale_F = numpy_["standardize"](x_NF, WIDTHS)
    moment = {name: numpy_["second_moment"](of, x_NF, scale_F) for name, of in changed.items()}
    tensors = {name: torch.from_numpy(of).float() for name, of in changed.items()}
    subspaces = Subspaces.of(torch.from_numpy(x_NF).float(), tensors, WIDTHS)
    level_NF = (x_NF - mean_F) / scale_F

    ignored_NF = level_NF @ numpy_["ignore"]([moment["color_jitter"], moment["rotate"]])
    space = subspaces.ignoring(["color_jitter", "rotate"])
    assert space(torch.from_numpy(x_NF)).numpy() == pytest.approx(ignored_NF, abs=2e-5)

    others = [moment["rotate"], moment["gaussian_blur"]]
    matched_NJ = level_NF @ numpy_["match"]([moment["color_jitter"]], others, axes=2)
    space = subspaces.matching(["color_jitter"], axes=2)
    ours_NJ = space(torch.from_numpy(x_NF)).numpy()
    assert ours_NJ @ ours_NJ.T == pytest.approx(matched_NJ @ matched_NJ.T, abs=2e-4)  # any signs


def test_a_transformer_ignores_a_change_inside_a_pipeline() -> None:
    """Classes differ along one axis, the change moves along another, far more."""
    draw = np.random.default_rng(0)
    label_N = draw.integers(0, 2, 200)
    x_ND = draw.normal(size=(200, 8))
    x_ND[:, 0] += 2 * label_N
    changed_ND = x_ND.copy()
    changed_ND[:, 1] += 30 * draw.normal(size=200)
    invariance = mast.Invariance(ridge=1e-4).fit(x_ND, changed_ND)
    classifier = make_pipeline(FrozenEstimator(invariance), LogisticRegression())
    unseen_ND = x_ND.copy()
    unseen_ND[:, 1] -= 50
    kept_N = classifier.fit(x_ND, label_N).predict(unseen_ND) == classifier.predict(x_ND)
    plain = LogisticRegression().fit(x_ND, label_N)
    plain_N = plain.predict(unseen_ND) == plain.predict(x_ND)
    assert kept_N.mean() > 0.9 > plain_N.mean()
    seen_ND, seen_changed_ND = map(invariance.transform, (x_ND, changed_ND))
    moved = np.linalg.norm(seen_changed_ND - seen_ND) * float(invariance.space_.scale_F[0])
    floor = 1e-4 / 8  # of the one eigenvalue
    expected = np.sqrt(floor / (1 + floor)) * np.linalg.norm(changed_ND - x_ND)
    assert moved == pytest.approx(expected, rel=1e-3)
    several = mast.Invariance(ridge=1e-4).fit(x_ND, {"one": changed_ND, "same": x_ND})
    assert several.transform(x_ND) == pytest.approx(seen_ND, abs=1e-5)
    with pytest.raises(ValueError, match=r"X_changed: expected finite values of \(200, 8\)"):
        mast.Invariance().fit(x_ND, changed_ND[:100])
