"""The regression finds the optimum, and the walk over penalties the best of them."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from scipy.linalg import LinAlgWarning
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from mast.evaluation.accuracy import accuracy
from mast.evaluation.labelled_sets import cross_validation
from mast.evaluation.logistic import (
    PENALTIES,
    Choice,
    LinearClassifier,
    Target,
    Whitened,
    choose,
    fit,
)


def fitted(x: Tensor, labels: Tensor, classes: int, penalty: float) -> LinearClassifier:
    return fit(Whitened.of(x), Target(labels, classes), penalty)


def relu_features(n: int, d: int, classes: int) -> tuple[Tensor, Tensor]:
    """Correlated, positive, badly scaled: what a pooled encoder gives."""
    labels = torch.arange(n) % classes
    latent = 0.7 * torch.randn(classes, 16)[labels] + torch.randn(n, 16)
    mixed = latent @ (torch.randn(16, d) * torch.logspace(0, -1, 16)[:, None])
    x = (mixed + 0.2 * torch.randn(n, d)).relu() * torch.logspace(-1, 0.5, d)
    return x, labels


def reference(x: Tensor, labels: Tensor, penalty: float, fitted: int) -> Tensor:
    """Probabilities by scikit-learn, fitted to the first images, of the others."""
    vectors = 2 if labels.max() == 1 else 1  # of two classes it penalises one vector of weights
    model = LogisticRegression(
        C=vectors / (fitted * penalty), solver="newton-cholesky", tol=1e-9, max_iter=1000
    )
    model.fit(x[:fitted].double().numpy(), labels[:fitted].numpy())
    return torch.from_numpy(model.predict_proba(x[fitted:].double().numpy()))


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(12, 150), st.integers(1, 60), st.integers(2, 8)),
    rarer=st.floats(0, 1),
    scales=st.tuples(st.floats(0, 4), st.floats(-3, 3), st.floats(-7, 3)),
    copies=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_equals_sklearn_whatever_the_features(
    seed: int, shape: tuple[int, ...], rarer: float, scales: tuple[float, ...], copies: bool,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    """Any shape, rare classes, duplicates, scales that differ by up to 10⁴, large and small."""
    (images, dimensions, classes), (worse, larger, logarithm) = shape, scales
    generator = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(
        torch.arange(1.0, 1 + classes) ** (-3 * rarer), images, True, generator=generator
    )
    labels[:classes] = torch.arange(classes)  # scikit-learn has no class without an image
    centres = torch.randn(classes, dimensions, generator=generator)
    x = centres[labels] + 1.5 * torch.randn(images, dimensions, generator=generator)
    x = x * torch.logspace(larger, larger - worse, dimensions) + 10**larger
    if copies:
        x, labels = (torch.cat([of, of[: images // 2]]) for of in (x, labels))
        x = torch.cat([x, x[:, : dimensions // 2]], dim=1)
    # What the features' scale leaves of a penalty is what the optimum depends on.
    penalty = 10 ** (logarithm + 2 * larger)
    ours = fitted(x.to(dtype), labels, classes, penalty).scores(x.to(dtype)).softmax(dim=1)
    try:
        expected = reference(torch.cat([x, x]), torch.cat([labels, labels]), penalty, len(x))
    except (ConvergenceWarning, LinAlgWarning):  # it says itself where it does not get there
        reject()
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=0)
    assert accuracy(ours, labels, "top1") == pytest.approx(
        accuracy(expected, labels, "top1"), abs=0.1
    )


def test_fewer_images_than_dimensions_and_dead_dimensions() -> None:
    x, labels = relu_features(60, 100, 3)
    x[:, 10:20] = 4.0
    assert len(Whitened.of(x[:40]).variance_P) <= 39
    ours = fitted(x[:40], labels[:40], 3, 1e-2).scores(x[40:]).softmax(dim=1)
    torch.testing.assert_close(ours, reference(x, labels, 1e-2, 40), atol=1e-4, rtol=0)
    torch.manual_seed(25)  # MKL's eigh fails on this covariance, with one thread and two
    alive = torch.randn(1100, 8) @ torch.randn(8, 64)
    wide = torch.zeros(1100, 1000).index_copy(1, torch.randperm(1000)[:64], alive)
    torch.testing.assert_close(Whitened.of(wide).variance_P, Whitened.of(alive).variance_P)


@pytest.mark.parametrize(("images", "scale"), [(60, 1e6), (300, 1e12)])
def test_a_dimension_of_large_scale_hides_no_other(images: int, scale: float) -> None:
    """More images than dimensions and fewer, chance where only the largest one was seen."""
    labels = torch.arange(images + 200) % 5
    x = torch.eye(5)[labels].repeat(1, 20) + 0.2 * torch.randn(images + 200, 100)
    x = torch.cat([x, torch.randn(len(x), 1)], dim=1)
    scaled = x * torch.cat([torch.ones(100), torch.tensor([scale])])
    ours = fitted(scaled[:images], labels[:images], 5, 1e-2).scores(scaled[images:])
    assert accuracy(ours, labels[images:], "top1") == 100
    # Nothing is left of the penalty of a weight that is so small: its dimension may have any scale.
    expected = reference(x * torch.tensor([1.0] * 100 + [1e4]), labels, 1e-2, images)
    torch.testing.assert_close(ours.softmax(dim=1), expected, atol=1e-4, rtol=0)
    target = Target(labels, 5, ((torch.arange(images), torch.arange(images, images + 200)),))
    choice = choose(Whitened.of(scaled, torch.arange(images)), target)
    assert choice.validation == 100


def test_a_collapsed_encoder_scores_the_prior() -> None:
    x, labels = torch.ones(30, 8), torch.arange(30) % 3
    scores = fitted(x, labels, 3, 1e-3).scores(x)
    assert accuracy(scores, labels, "top1") == pytest.approx(100 / 3, abs=1e-3)
    rare = fitted(x, (torch.arange(30) % 3).clamp(max=1), 3, 1e-3).scores(x).softmax(1)
    torch.testing.assert_close(rare[0], torch.tensor([1 / 3, 2 / 3, 0.0]).double())


def several(images: int = 240) -> tuple[Tensor, list[Target]]:
    """Features and four targets with other classes, splits and metrics."""
    x, labels = relu_features(images, 30, 6)
    noise = torch.randint(0, 6, (images,))
    targets = [
        Target(labels // 2, 3, folds(labels)),
        Target(torch.where(noise < 2, noise, labels), 6, folds(labels)[:1]),
        Target((labels > 0).long(), 2, folds(noise)[:2], "mean_per_class"),
        Target(noise, 6, folds(noise)),
    ]
    return x, targets


def folds(labels: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    pairs = cross_validation(labels.numpy(), seed=0, count=3)
    return tuple((torch.from_numpy(fit_F), torch.from_numpy(choose_V)) for fit_F, choose_V in pairs)


def walked(
    x: Tensor, target: Target, penalties: Sequence[float], patience: int
) -> tuple[Choice, int]:
    """The choice by its definition: every penalty fitted for itself by scikit-learn."""
    best, worse = Choice(0.0, -1.0), 0
    curvature = Whitened.of(x).curvature(target.classes)
    for tried, penalty in enumerate([each for each in penalties if each <= curvature], 1):
        scores, labels, weights = [], [], []
        for fit_F, choose_V in target.splits:
            order = torch.cat([fit_F, choose_V])
            scores.append(reference(x[order], target.labels_N[order], penalty, len(fit_F)))
            labels.append(target.labels_N[choose_V])
            weights.append(len(choose_V))
        each = [accuracy(*of, target.metric) for of in zip(scores, labels, strict=True)]
        reached = float(np.average(each, weights=weights))
        worse = worse + 1 if reached < best.validation - 1e-9 else 0
        if reached > best.validation + 1e-9:
            best = Choice(penalty, reached)
        if worse == patience:
            return best, tried
    return best, tried


def test_the_choice_is_that_of_a_walk_by_sklearn() -> None:
    x, targets = several()
    penalties = PENALTIES[12:36:3]
    tried = []
    for target in targets:
        choice = choose(Whitened.of(x), target, penalties, patience=4)
        expected, count = walked(x, target, penalties, 4)
        assert choice.penalty == expected.penalty
        assert choice.validation == pytest.approx(expected.validation)
        tried.append(count)
    assert len(set(tried)) > 1  # they end at different penalties


def test_the_walk_goes_on_while_the_penalty_crushes_every_axis() -> None:
    # At first only the strong axis counts, which says little; validation falls by chance.
    labels = torch.arange(400) % 2
    x = torch.randn(400, 6) * torch.tensor([1e-2, 1, 1, 1, 1, 1])
    x[:, 0] += 3e-2 * labels
    target = Target(labels, 2, ((torch.arange(200), torch.arange(200, 400)),))
    chosen = choose(Whitened.of(x), target)
    assert chosen == choose(Whitened.of(x), target, patience=100)
    assert chosen.validation > 85
    one_hot, labels = torch.eye(3).repeat(20, 1), torch.arange(60) % 3
    tied = Target(labels, 3, folds(labels))
    assert choose(Whitened.of(one_hot), tied).validation == 100  # frequencies do not decide
    assert choose(Whitened.of(one_hot), tied, (1e-3, 1e-2)).penalty == 1e-2  # whatever the order
