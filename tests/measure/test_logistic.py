"""The regression finds the optimum, and the walk over penalties the best of them."""

import functools

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from mast.measure.accuracy import accuracy
from mast.measure.logistic import Classifier, Split, choose_penalty
from mast.measure.sets import cross_validation
from mast.protocols import Linear


def relu_features(n: int, d: int, classes: int) -> tuple[Tensor, Tensor]:
    """Correlated, positive, badly scaled: what a pooled encoder gives."""
    labels = torch.arange(n) % classes
    latent = 0.7 * torch.randn(classes, 16)[labels] + torch.randn(n, 16)
    mixed = latent @ (torch.randn(16, d) * torch.logspace(0, -1, 16)[:, None])
    x = (mixed + 0.2 * torch.randn(n, d)).relu() * torch.logspace(-1, 0.5, d)
    return x, labels


def reference(x: Tensor, labels: Tensor, penalty: float, fitted: int) -> Tensor:
    """Probabilities by scikit-learn, fitted to the first images, of the others."""
    model = LogisticRegression(
        C=1 / (fitted * penalty), solver="newton-cholesky", tol=1e-9, max_iter=1000
    )
    model.fit(x[:fitted].double().numpy(), labels[:fitted].numpy())
    return torch.from_numpy(model.predict_proba(x[fitted:].double().numpy()))


@functools.cache
def problem(penalty: float) -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels, and scikit-learn's probabilities of all images but the first 400."""
    torch.manual_seed(0)
    x, labels = relu_features(2400, 40, 5)
    return x, labels, reference(x, labels, penalty, 400)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("penalty", [1e-5, 1e-3, 1e-1, 1e2])
def test_equals_the_optimum_of_sklearn(penalty: float, dtype: torch.dtype) -> None:
    x, labels, expected = problem(penalty)
    train, test = x[:400].to(dtype), x[400:].to(dtype)
    ours = Classifier.fitted(train, labels[:400], 5, penalty).scores(test).softmax(dim=1)
    reached, optimum = (accuracy(p, labels[400:], "top1") for p in (ours, expected))
    assert reached == pytest.approx(optimum, abs=0.1)
    tolerance = 5e-3 if dtype is torch.float64 else 2e-2  # at 1e-5 float32 stops a little early
    torch.testing.assert_close(ours.double(), expected, atol=tolerance, rtol=0)


def test_fewer_images_than_dimensions_and_dead_dimensions() -> None:
    x, labels = relu_features(60, 100, 3)
    x[:, 10:20] = 4.0
    classifier = Classifier.fitted(x[:40], labels[:40], 3, 1e-2)
    assert len(classifier.axes.variance_P) <= 40  # 39 axes that vary, and the bias
    ours = classifier.scores(x[40:]).softmax(dim=1)
    torch.testing.assert_close(ours.double(), reference(x, labels, 1e-2, 40), atol=5e-3, rtol=0)


def test_a_collapsed_encoder_scores_the_prior() -> None:
    x, labels = torch.ones(30, 8), torch.arange(30) % 3
    scores = Classifier.fitted(x, labels, 3, 1e-3).scores(x)
    assert accuracy(scores, labels, "top1") == pytest.approx(100 / 3, abs=1e-3)


def test_the_walk_ends_early_with_the_same_choice() -> None:
    x, labels = relu_features(600, 60, 4)
    split = ([Split(x[:200], labels[:200], x[200:], labels[200:])], 4, Linear().penalties)
    patient = choose_penalty(*split, patience=100)
    assert choose_penalty(*split) == patient
    assert patient[1] > 50


def test_the_walk_goes_on_while_the_penalty_crushes_every_axis() -> None:
    # At first only the strong axis counts, which says little; validation falls by chance.
    labels = torch.arange(400) % 2
    x = torch.randn(400, 6) * torch.tensor([1e-2, 1, 1, 1, 1, 1])
    x[:, 0] += 3e-2 * labels
    split = ([Split(x[:200], labels[:200], x[200:], labels[200:])], 2, Linear().penalties)
    chosen = choose_penalty(*split)
    assert chosen == choose_penalty(*split, patience=100)
    assert chosen[1] > 85


def test_the_choice_of_several_splits_is_the_best_of_their_mean() -> None:
    x, labels = relu_features(90, 30, 3)
    splits = [
        Split(x[fit_F], labels[fit_F], x[choose_V], labels[choose_V])
        for fit_F, choose_V in cross_validation(labels.numpy(), seed=0)
    ]
    penalties = (1.0, 0.1, 0.01, 1e-6)
    each = [[choose_penalty([split], 3, [penalty])[1] for split in splits] for penalty in penalties]
    images = [len(split.choose_VD) for split in splits]
    means = [np.average(of_penalty, weights=images) for of_penalty in each]
    chosen, reached = choose_penalty(splits, 3, penalties)
    assert reached == pytest.approx(max(means), abs=2)  # they start elsewhere
    assert means[penalties.index(chosen)] == pytest.approx(max(means), abs=2)


def test_penalties_are_those_of_the_reference() -> None:
    assert Linear().penalties[0] == pytest.approx(1e5)
    assert Linear().penalties[-1] == pytest.approx(1e-6)
    assert len(Linear().penalties) == 45
