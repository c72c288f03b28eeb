"""The approximate search: what it finds, how much that is, and what is kept of it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from mast.core.errors import UserError
from mast.evaluation.neighbours import nearest
from mast.search import approximate
from mast.search.approximate import ApproximateIndex, build, check_depth, open_index


def clusters(count: int, seed: int = 0) -> Tensor:
    """Images around twenty centres, in 24 dimensions."""
    generator = torch.Generator().manual_seed(seed)
    centre_20D = torch.randn(20, 24, generator=torch.Generator().manual_seed(0))
    at_N = torch.randint(20, (count,), generator=generator)
    return 3 * centre_20D[at_N] + torch.randn(count, 24, generator=generator)


BANK = clusters(4000)


@pytest.fixture(scope="module")
def index() -> ApproximateIndex:
    return build(BANK)


def share_found(index: ApproximateIndex, queries_MD: Tensor, k: int) -> float:
    """By positions, each query among its own neighbours."""
    truth_MK = nearest(BANK, queries_MD, k)[1].tolist()
    found_MK = index.nearest(queries_MD, k)[1].tolist()
    both = (len({*truth} & {*found}) for truth, found in zip(truth_MK, found_MK, strict=True))
    return sum(both) / len(queries_MD) / k


def test_what_is_found_is_what_the_recall_says(index: ApproximateIndex) -> None:
    """Of other images of the same kind, for any number of neighbours."""
    assert index.lists.probes < len(index.lists.centre_LD) == 100
    assert index.recall(10) > 0.93
    others_MD = clusters(500, seed=1)
    for k in (1, 10, 100):
        assert share_found(index, others_MD, k) == pytest.approx(index.recall(k), abs=0.04)


def test_fewer_lists_find_less_and_all_of_them_everything(index: ApproximateIndex) -> None:
    others_MD = clusters(200, seed=1)

    def searched(probes: int) -> ApproximateIndex:
        return replace(index, lists=index.lists._replace(probes=probes))

    assert share_found(searched(1), others_MD, 10) < share_found(index, others_MD, 10)
    similarity_MK, position_MK = searched(100).nearest(others_MD, 10)
    truth_MK, at_MK = nearest(BANK, others_MD, 10)
    torch.testing.assert_close(similarity_MK, truth_MK)
    assert (position_MK == at_MK).float().mean() > 0.99  # but for equal cosines


def test_the_recall_counts_the_others_alone(index: ApproximateIndex) -> None:
    """Every image finds itself: where a list holds nothing else, nothing is found."""
    apart = torch.eye(4).repeat_interleave(2, dim=0) + 0.01 * torch.rand(8, 4)
    lists = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7])
    inverted = approximate._filled(apart, F.normalize(apart, dim=1), lists)
    truth_SK, _ = nearest(apart, apart, 2)
    assert approximate._recalls(inverted, apart, truth_SK, 1).tolist() == [0]
    assert approximate._recalls(inverted, apart, truth_SK, 2).tolist() == [1]


def test_as_many_are_found_as_are_asked_for(index: ApproximateIndex) -> None:
    """More lists are searched where few hold too few images."""
    narrow = replace(index, lists=index.lists._replace(probes=1))
    position_MK = narrow.nearest(clusters(5, seed=1), 1500)[1]
    assert position_MK.min() >= 0
    assert all(len(row.unique()) == 1500 for row in position_MK)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the banks of which an index was built."""
    sizes: list[int] = []

    def counted(bank_ND: Tensor) -> ApproximateIndex:
        sizes.append(len(bank_ND))
        return build(bank_ND)

    monkeypatch.setattr("mast.search.approximate.build", counted)
    return sizes


def test_an_index_is_built_once_for_features_and_a_choice(
    tmp_path: Path, built: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    query_MD, features = clusters(3, seed=1), tmp_path / "features.safetensors"
    first = open_index(BANK, features, "one").nearest(query_MD, 10)
    again = open_index(BANK, features, "one")
    assert built == [4000]
    assert torch.equal(again.nearest(query_MD, 10)[0], first[0])
    assert torch.equal(again.nearest(query_MD, 10)[1], first[1])
    assert again.recall(10) > 0.93
    open_index(BANK, features, "other")
    open_index(BANK, tmp_path / "others.safetensors", "one")
    open_index(BANK[:3000], features, "one")  # of another number of images
    assert built == [4000, 4000, 4000, 3000]
    open_index(BANK[:100], None, "one")
    assert len(list(tmp_path.iterdir())) == 3
    assert "built again" not in caplog.text


def test_an_index_that_is_damaged_or_of_other_features_is_built_again(
    tmp_path: Path, built: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    open_index(BANK, tmp_path / "a.safetensors", "one")
    (theirs,) = tmp_path.iterdir()
    open_index(BANK.flip(0), tmp_path / "b.safetensors", "one")
    (ours,) = set(tmp_path.iterdir()) - {theirs}
    expected = ours.read_bytes()
    for wrong, said in (
        (theirs.read_bytes(), "is not the index of these features: the index is built again"),
        (expected[:-1], "is damaged"),
    ):
        ours.write_bytes(wrong)
        open_index(BANK.flip(0), tmp_path / "b.safetensors", "one")
        assert f"{ours} {said}" in caplog.text
        assert ours.read_bytes() == expected
    assert len(built) == 4


def test_a_full_disk_costs_the_index_and_not_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    index = open_index(BANK[:200], tmp_path / "features.safetensors", "one")
    assert len(index.nearest(BANK[:1], 5)[1][0]) == 5
    assert "the index is not kept for the next search: cannot write" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_what_the_recall_is_not_measured_for_is_refused() -> None:
    check_depth(100, 101)
    for k, images, message in (
        (101, 1000, "finds up to 100 neighbours among 1,000 images, got k 101: leave approximate"),
        (24, 24, "finds up to 23 neighbours among 24 images, got k 24"),
        (1, 1, "finds up to 0 neighbours among 1 images, got k 1"),
    ):
        with pytest.raises(UserError, match=message):
            check_depth(k, images)
