"""The L-BFGS probe finds the optimum; SGD comes near it."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from mast.measure.accuracy import accuracy
from mast.measure.logistic import Axes, choose_penalty, fit
from mast.protocols import Linear


def relu_features(n: int, d: int, classes: int) -> tuple[Tensor, Tensor]:
    """Correlated, positive, badly scaled: what a pooled encoder gives."""
    labels = torch.arange(n) % classes
    latent = 0.7 * torch.randn(classes, 16)[labels] + torch.randn(n, 16)
    mixed = latent @ (torch.randn(16, d) * torch.logspace(0, -1, 16)[:, None])
    x = (mixed + 0.2 * torch.randn(n, d)).relu() * torch.logspace(-1, 0.5, d)
    return x, labels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("penalty", [1e-5, 1e-3, 1e-1, 1e2])
def test_equals_the_optimum_of_sklearn(penalty: float, dtype: torch.dtype) -> None:
    x, labels = relu_features(2400, 40, 5)
    train, test = x[:400].to(dtype), x[400:].to(dtype)
    axes = Axes.of(train)
    start = train.new_zeros(5, len(axes.variance_P))
    weight = fit(axes.coordinates(train), labels[:400], axes.variance_P, penalty, start)
    ours = (axes.coordinates(test) @ weight.T).softmax(dim=1)

    model = LogisticRegression(C=1 / (400 * penalty), tol=1e-9, max_iter=50_000)
    model.fit(x[:400].double().numpy(), labels[:400].numpy())
    expected = torch.from_numpy(model.predict_proba(x[400:].double().numpy()))

    reached, reference = (accuracy(p, labels[400:], "top1") for p in (ours, expected))
    assert reached == pytest.approx(reference, abs=0.1)
    tolerance = 5e-3 if dtype is torch.float64 else 2e-2  # at 1e-5 float32 stops a little early
    torch.testing.assert_close(ours.double(), expected, atol=tolerance, rtol=0)


def test_fewer_images_than_dimensions_and_dead_dimensions() -> None:
    x, labels = relu_features(60, 100, 3)
    x[:, 10:20] = 4.0
    axes = Axes.of(x[:40])
    assert len(axes.variance_P) <= 40  # 39 axes that vary, and the bias
    start = x.new_zeros(3, len(axes.variance_P))
    weight = fit(axes.coordinates(x[:40]), labels[:40], axes.variance_P, 1e-2, start)
    model = LogisticRegression(C=1 / (40 * 1e-2), tol=1e-9, max_iter=50_000)
    model.fit(x[:40].double().numpy(), labels[:40].numpy())
    expected = torch.from_numpy(model.predict_proba(x[40:].double().numpy()))
    ours = (axes.coordinates(x[40:]) @ weight.T).softmax(dim=1)
    torch.testing.assert_close(ours.double(), expected, atol=5e-3, rtol=0)


def test_a_collapsed_encoder_scores_the_prior() -> None:
    x, labels = torch.ones(30, 8), torch.arange(30) % 3
    axes = Axes.of(x)
    weight = fit(axes.coordinates(x), labels, axes.variance_P, 1e-3, x.new_zeros(3, 1))
    assert accuracy(axes.coordinates(x) @ weight.T, labels, "top1") == pytest.approx(
        100 / 3, abs=1e-3
    )


def test_the_walk_ends_early_with_the_same_choice() -> None:
    x, labels = relu_features(600, 60, 4)
    split = ((x[:200], labels[:200]), (x[200:], labels[200:]), 4, Linear().penalties)
    patient = choose_penalty(*split, patience=100)
    assert choose_penalty(*split) == patient
    assert patient[1] > 50


def test_the_walk_goes_on_while_the_penalty_crushes_every_axis() -> None:
    # At first only the strong axis counts, which says little; validation falls by chance.
    labels = torch.arange(400) % 2
    x = torch.randn(400, 6) * torch.tensor([1e-2, 1, 1, 1, 1, 1])
    x[:, 0] += 3e-2 * labels
    split = ((x[:200], labels[:200]), (x[200:], labels[200:]), 2, Linear().penalties)
    chosen = choose_penalty(*split)
    assert chosen == choose_penalty(*split, patience=100)
    assert chosen[1] > 85


def test_penalties_are_those_of_the_reference() -> None:
    assert Linear().penalties[0] == pytest.approx(1e5)
    assert Linear().penalties[-1] == pytest.approx(1e-6)
    assert len(Linear().penalties) == 45
