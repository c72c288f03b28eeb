"""The verdict on a run: its sentence in closed form, by which rule it is quoted, what it covers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_evaluation import measured
from torch import Tensor

from mast.evaluation.compare import START, compare
from mast.evaluation.intervals import tango
from mast.evaluation.result import TargetResult
from mast.evaluation.verdict import Verdict

COUNT = 400
BASELINE = "timm:resnet18.a1_in1k"


def right(count: int, first: int = 0) -> Tensor:
    """Of the test images, so many are right, from one on."""
    return ((torch.arange(COUNT) >= first) & (torch.arange(COUNT) < first + count)).float()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that is right about the first 240 of 400 images by a linear probe."""
    run = tmp_path / "flowers"
    run.mkdir()
    (run / "config.yaml").touch()
    measured(run, right(240))
    return run


def judged(*runs: Path) -> Verdict:
    return compare(runs).verdict


def ends(gained: int, lost: int, n: int = COUNT) -> tuple[float, float]:
    low, high = tango(gained, lost, n)
    return 100 * low, 100 * high


def test_better_than_untrained(run: Path) -> None:
    measured(run / "untrained", right(200))
    comparison, (low, high) = compare([run]), ends(40, 0)
    (row,) = comparison.rows
    (gain,), verdict = row.gains, comparison.verdict
    assert (gain.value, gain.low, gain.high) == pytest.approx((10, low, high))
    assert verdict.sentence == (
        "Better than the untrained encoder on flowers17: linear accuracy +10.0 points "
        f"[{low:+.1f}, {high:+.1f}]."
    )
    assert verdict.is_better is True
    assert verdict.command == ""
    assert verdict.basis == (
        "95 % intervals, paired, over 400 test images: they do not cover other seeds of "
        "pretraining."
    )


def test_what_it_started_as_is_found_beside_the_run(run: Path) -> None:
    measured(run / "untrained", right(200))
    for runs in ([run], [run, run / "untrained"]):
        comparison = compare(runs)
        assert comparison.runs == ("flowers", START)
        assert comparison.folders == (run, run / "untrained")
    # The untrained encoder itself has no verdict of its own beside the run.
    turned = judged(run / "untrained", run)
    assert turned.sentence.startswith("Worse than flowers on flowers17: linear accuracy -10.0")
    assert (turned.is_better, turned.command) == (None, "")


def test_others_follow_what_it_started_as(run: Path, tmp_path: Path) -> None:
    measured(run / "untrained", right(200))
    measured(tmp_path / "vicreg", right(260))
    measured(tmp_path / "resnet", right(240, first=2))
    sentence = judged(run, tmp_path / "vicreg", tmp_path / "resnet").sentence
    assert [part.partition(" on ")[0] for part in sentence.split(". ")] == [
        "Better than the untrained encoder", "Worse than vicreg",
        "Not distinguishable from resnet",
    ]  # fmt: skip


def test_each_measure_that_differs_is_named_the_largest_first(run: Path) -> None:
    """None is chosen by what it says, and one that may be chance does not hide the others."""
    measured(run, right(300), "knn")
    measured(run, right(330), "finetune")
    measured(run / "untrained", right(236, first=10))
    measured(run / "untrained", right(260), "knn")
    measured(run / "untrained", right(200), "finetune")
    verdict = judged(run)
    named = [part.partition(" [")[0] for part in verdict.sentence.split(", ") if "accuracy" in part]
    assert named == [
        "Better than the untrained encoder on flowers17: fine-tuned accuracy +32.5 points",
        "kNN accuracy +10.0", "linear accuracy +1.0",
    ]  # fmt: skip
    assert verdict.sentence.endswith("] (may be chance).")
    assert verdict.is_better is True
    measured(run, right(200), "knn")
    assert judged(run).sentence.startswith("Better and worse than the untrained encoder")
    assert judged(run).is_better is None


@pytest.mark.parametrize(
    "changes",
    [
        {"images": "others"},
        {"protocol": "retrieval"},
        {"sizes": {"train": 80, "test": COUNT}},  # learned from other images
        {"targets": {"class": TargetResult({"top1": 50.0})}},  # what each image gave was not kept
    ],
)
def test_nothing_in_common(run: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    measured(tmp_path / "other", right(200), **changes)
    verdict = judged(run, tmp_path / "other")
    assert verdict.sentence == ("Not compared with other: no accuracy of both on the same images.")
    assert verdict.basis == ""
    assert verdict.is_better is None


def test_what_is_missing_has_its_command(run: Path, tmp_path: Path) -> None:
    alone = judged(run)
    assert alone.sentence == (
        "What pretraining added is unknown: no other encoder was measured on this set."
    )
    assert str(alone).endswith(f": mast evaluate {run} --data SET --untrained")
    measured(tmp_path / "resnet", right(200))
    assert judged(tmp_path / "resnet").sentence == "Nothing but resnet was measured."


@pytest.mark.parametrize(("hits", "better"), [(300, False), (210, True)])
def test_published_weights_are_found_and_counted(
    run: Path, hits: int, better: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    measured(run / "untrained", right(200))
    folder = Path("runs") / "whatever"
    encoder = {"encoder": {"name": BASELINE}, "source": BASELINE, "weights": {"sha256": "01"}}
    measured(folder, right(hits), encoder=encoder)
    assert compare([folder, run]).folders == (folder, run)
    comparison = compare([run])
    assert comparison.folders == (run, run / "untrained", folder)
    assert f"{'Better' if better else 'Worse'} than the published {BASELINE}" in (
        comparison.verdict.sentence
    )
    assert comparison.verdict.is_better is better


def test_other_features_of_the_same_weights_are_not_called_published(tmp_path: Path) -> None:
    run, encoder = tmp_path / "adapted", {"encoder": {"name": BASELINE}}
    measured(run, right(200), encoder=encoder)
    measured(run / "spaces" / "ignored-all", right(260), encoder=encoder)
    verdict = judged(run, run / "spaces" / "ignored-all")
    assert verdict.sentence.startswith("Worse than adapted/ignored-all (the same weights) on")
    assert "pretrain" not in str(verdict)


def test_several_sets_count_alike(run: Path) -> None:
    """The interval of the mean is that of independent differences."""
    measured(run, right(100), images="textures", sizes={"train": 9, "test": 1000})
    measured(run / "untrained", right(200))
    measured(run / "untrained", right(120), images="textures", sizes={"train": 9, "test": 1000})
    verdict = judged(run)
    (gain,) = verdict.comparisons[0].gains
    assert gain.place == "the mean of textures and flowers17"  # most test images first
    value, low, high = gain.mean
    (up, up_high), (down, down_high) = ends(40, 0), ends(0, 20)
    assert value == pytest.approx((10 - 5) / 2)
    assert low == pytest.approx(2.5 - ((10 - up) ** 2 + (-5 - down) ** 2) ** 0.5 / 2)
    assert high == pytest.approx(2.5 + ((up_high - 10) ** 2 + (down_high + 5) ** 2) ** 0.5 / 2)
    assert "over 1,400 test images" in verdict.basis


def drawn(folder: Path, hits: Tensor, seed: int, of: str = "all", name: str = "mine") -> None:
    """A result on images of a folder without parts, drawn by a seed."""
    split = {"by": "class", "share": 0.2, "seed": seed, "of": of}
    set_name = f"{name}@test"
    measured(folder, hits, images=f"{name}, {seed}", set_name=set_name, split=split)


def test_images_of_one_folder_drawn_by_several_seeds_are_no_two_sets(tmp_path: Path) -> None:
    """The lowest seed is quoted, whatever was measured by it; its interval is that of one set."""
    run, other_name = tmp_path / "flowers", "/elsewhere/copied"
    for folder, hits in ((run, 240), (run / "untrained", 230)):
        drawn(folder, right(hits), 3)
        drawn(folder, right(hits + 99 * (folder == run)), 7, name=other_name)
    (low, high) = ends(10, 0)
    assert judged(run).sentence.endswith(
        f"on mine (drawn by seed 3): linear accuracy +2.5 points [{low:+.1f}, {high:+.1f}]."
    )


def test_several_targets_of_a_set_are_one_difference(run: Path) -> None:
    """They are of the same images, so their mean is taken image by image."""

    def targets(*hits: Tensor) -> dict[str, TargetResult]:
        return {
            f"task {at}": TargetResult({"top1": 100 * float(each.mean())}, each={"top1": each})
            for at, each in enumerate(hits)
        }

    measured(run, right(0), targets=targets(right(300), right(100)))
    measured(run / "untrained", right(0), targets=targets(right(200), right(200)))
    (gain,) = judged(run).comparisons[0].gains
    assert gain.mean.value == pytest.approx(0)
    assert gain.mean.low < 0 < gain.mean.high  # gained by some images and lost by others
    assert gain.place == "flowers17 (mean of 2 targets)"
