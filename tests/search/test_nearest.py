"""The weighted vote, where scikit-learn and an oracle must agree."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from tiny_evaluation import tiny_set
from torch import nn

from mast.core.errors import UserError
from mast.evaluation.accuracy import accuracies
from mast.evaluation.online import online_scores
from mast.search.nearest import block_shape, cosines, nearest, votes


@pytest.mark.parametrize("k", [1, 30])
def test_agrees_with_sklearn(k: int) -> None:
    x = torch.randn(300, 8)
    labels = torch.arange(300) % 4
    x[:, :4] += torch.eye(4)[labels]
    temperature = 0.07

    def weigh(distance: np.ndarray) -> np.ndarray:
        return np.exp(-(distance**2) / 2 / temperature)  # |a - b|² = 2 - 2 cos

    unit_x = torch.nn.functional.normalize(x, dim=1).numpy()
    model = KNeighborsClassifier(k, weights=weigh).fit(unit_x[:200], labels[:200].numpy())
    expected = model.predict_proba(unit_x[200:])
    lengths = torch.linspace(0.1, 9.0, 200)[:, None]  # longer vectors do not count more
    similarity, position = nearest(lengths * x[:200], x[200:], k)
    ours = votes(similarity, labels[position], temperature, 4)
    np.testing.assert_allclose(ours / ours.sum(dim=1, keepdim=True), expected, atol=1e-5)


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
def test_top5_guesses_are_the_classes_of_neighbours(spread: float) -> None:
    """An oracle that sums votes class by class; without spread, all 20 neighbours are of a class,
    and half of the queries are of the next one."""
    label_N, true_M = torch.arange(360) % 12, torch.arange(24) % 12
    bank_ND = torch.eye(12)[label_N] + spread * torch.rand(360, 12)
    query_MD = torch.eye(12)[(true_M + torch.arange(24) // 12) % 12] + spread * torch.rand(24, 12)
    similarity_MK, at_MK = nearest(bank_ND, query_MD, 20)
    right = 0
    for true, near_K, cosine_K in zip(true_M.tolist(), at_MK, similarity_MK, strict=True):
        votes_of = Counter[int]()
        for label, cosine in zip(label_N[near_K].tolist(), cosine_K.tolist(), strict=True):
            votes_of[label] += math.exp(cosine / 0.07)  # type: ignore[assignment]
        right += true in dict(votes_of.most_common(5))
    scores_MC = votes(similarity_MK, label_N[at_MK], 0.07, 12)
    found = dict(accuracies("class", scores_MC, true_M, 0, 10, neighbours=20))
    assert found["class/top5"] == pytest.approx(100 * right / 24)
    assert spread or found["class/top5"] == found["class/top1"] == 50


@pytest.mark.parametrize("scale", [1e-30, 1e14])
def test_the_scale_of_features_does_not_matter(scale: float) -> None:
    bank, queries = torch.randn(40, 6), torch.randn(23, 6)
    bank[3] = queries[5] = 0  # no direction: as near to one as to another
    similarity, position = nearest(bank, queries, k=7)
    mixed = torch.where(torch.arange(40)[:, None] % 2 == 0, scale, 1.0)
    scaled, at = nearest(bank * mixed, queries * scale, k=7)
    torch.testing.assert_close(scaled, similarity)
    assert torch.equal(at[:5], position[:5])
    assert scaled[5].tolist() == [0] * 7


def test_chunks_do_not_change_the_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, queries = torch.randn(40, 6), torch.randn(23, 6)
    whole = nearest(bank, queries, k=7)
    monkeypatch.setattr("mast.search.nearest.CHUNK_ELEMENTS", 5 * 9)
    monkeypatch.setattr("mast.search.nearest.ROWS", 9)
    assert block_shape(bank, queries) == (9, 5)
    parts = nearest(bank, queries, k=7)
    assert torch.equal(whole[1], parts[1])
    blocks = list(cosines(bank, bank, above_diagonal=True))
    every = torch.zeros(40, 40)
    for top, left, block in blocks:
        every[top : top + len(block), left : left + block.shape[1]] = block
    unit_bank = torch.nn.functional.normalize(bank, dim=1)
    torch.testing.assert_close(every.triu(), (unit_bank @ unit_bank.T).triu())
    assert len(blocks) < len(list(cosines(bank, bank)))
    torch.testing.assert_close(whole[0], parts[0])


@pytest.mark.parametrize("k", [0, 5])
def test_k_must_fit_the_bank(k: int) -> None:
    x = torch.randn(4, 3)
    with pytest.raises(UserError, match=f"k: expected 1 to 4, .*, got {k}"):
        nearest(x, x, k)


@pytest.mark.parametrize(("images", "expected"), [(4, False), (5, True)])
def test_a_run_of_very_few_images_is_watched_without_neighbours(
    encoder: nn.Module, images: int, expected: bool
) -> None:
    scores = online_scores(encoder, tiny_set(2).subset(range(images)), 16)
    assert ("online/knn" in scores) is expected
    assert scores["online/effective_rank"] >= 1 - 1e-6


def test_a_run_is_watched_by_the_images_that_have_a_label(encoder: nn.Module) -> None:
    images, label_N = tiny_set(10), tiny_set(10).targets["class"][:10]
    whole = replace(images.subset(range(10)), targets={"class": label_N})
    more = replace(images.subset(range(15)), targets={"class": np.r_[label_N, [-1] * 5]})
    scores = [online_scores(encoder, watched, 16)["online/knn"] for watched in (whole, more)]
    assert scores[0] == scores[1]
