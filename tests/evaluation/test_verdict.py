"""The verdict on a run: its sentence in closed form, by which rule it is quoted, what it covers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_evaluation import measured
from torch import Tensor

from mast.evaluation.compare import START, compare
from mast.evaluation.intervals import tango
from mast.evaluation.result import TargetResult
from mast.evaluation.verdict import STARTED_FROM, Verdict
from mast.models import BASELINE, BASELINE_SIZE, size_of

COUNT = 400


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
    assert gain is not None
    assert (gain.value, gain.low, gain.high) == pytest.approx((10, low, high))
    assert verdict.sentence == (
        f"Pretraining added 10.0 points [{low:.1f}, {high:.1f}] of linear accuracy on flowers17 "
        "over the untrained encoder."
    )
    assert verdict.is_better is True
    assert STARTED_FROM not in verdict.commands
    assert verdict.basis == (
        "95 % intervals, paired, over 400 test images: they do not cover other seeds of "
        "pretraining. The sentence quotes linear, top-1; other rows weigh images differently, so "
        "they may disagree."
    )


def test_not_distinguishable_from_its_start(run: Path) -> None:
    measured(run / "untrained", right(236, first=10))  # ten gained, six lost
    (run / "provenance.json").write_text(json.dumps({"started_from": {"size": 32}}))
    verdict, (low, high) = judged(run), ends(10, 6)
    assert low < 0 < high
    assert verdict.sentence == (
        "Not distinguishable from the weights it started from on flowers17 "
        f"(+1.0 points [{low:+.1f}, {high:+.1f}] of linear accuracy)."
    )
    assert verdict.is_better is None


def test_what_it_started_as_is_found_beside_the_run(run: Path) -> None:
    measured(run / "untrained", right(200))
    for runs in ([run], [run, run / "untrained"]):
        comparison = compare(runs)
        assert comparison.runs == ("flowers", START)
        assert comparison.folders == (run, run / "untrained")
        assert comparison.verdict == judged(run)
    # The untrained encoder itself has no verdict of its own beside the run.
    turned = judged(run / "untrained", run)
    assert turned.sentence.startswith("Worse than flowers on flowers17 by 10.0 points")
    assert turned.is_better is None
    assert STARTED_FROM not in turned.commands


def test_others_follow_what_it_started_as(run: Path, tmp_path: Path) -> None:
    measured(run / "untrained", right(200))
    measured(tmp_path / "vicreg", right(260))
    measured(tmp_path / "resnet", right(240, first=2))
    sentence = judged(run, tmp_path / "vicreg", tmp_path / "resnet").sentence
    start, worse, even = sentence.removesuffix(".").split("; ")
    assert start.endswith("of linear accuracy on flowers17 over the untrained encoder")
    assert worse == "worse than vicreg by 5.0 points [{:.1f}, {:.1f}]".format(*ends(20, 0))
    assert even == "not distinguishable from resnet (+0.0 points [{:+.1f}, {:+.1f}])".format(
        *ends(2, 2)
    )


def test_linear_before_knn_where_both_have_it(run: Path, tmp_path: Path) -> None:
    measured(run, right(300), "knn")
    measured(run / "untrained", right(200))
    measured(run / "untrained", right(300), "knn")
    measured(tmp_path / "other", right(200), "knn")
    start, other = judged(run, tmp_path / "other").comparisons
    assert (start.measure, other.measure) == ("linear accuracy", "kNN accuracy")
    assert other.gain is not None
    assert other.gain.value == pytest.approx(25)
    assert other.clause(start).endswith("of kNN accuracy")


@pytest.mark.parametrize(
    "changes",
    [
        {"images": "others"},
        {"protocol": "finetune"},
        {"sizes": {"train": 80, "test": COUNT}},  # learned from other images
        {"targets": {"class": TargetResult({"top1": 50.0})}},  # what each image gave was not kept
    ],
)
def test_nothing_in_common(run: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    measured(tmp_path / "other", right(200), **changes)
    verdict = judged(run, tmp_path / "other")
    assert verdict.sentence == (
        "Not compared with other, which has neither linear nor kNN accuracy on the same images."
    )
    assert verdict.basis == ""
    assert verdict.is_better is None


def test_what_is_missing_has_its_command(run: Path, tmp_path: Path) -> None:
    alone = judged(run)
    assert alone.sentence == (
        "What pretraining added is unknown: no other encoder was measured on this set."
    )
    assert list(alone.commands.values()) == [
        f"mast evaluate {run} --data SET --untrained",
        f"mast evaluate {BASELINE} --data SET --protocols linear --size 224 --download",
    ]
    assert str(alone).endswith(alone.commands["published weights"])
    assert size_of(BASELINE) == BASELINE_SIZE
    measured(tmp_path / "resnet", right(200))
    assert judged(tmp_path / "resnet").sentence == "Nothing but resnet was measured."
    assert STARTED_FROM not in judged(tmp_path / "resnet").commands


@pytest.mark.parametrize(("hits", "better"), [(300, False), (210, True)])
def test_published_weights_are_found_and_counted(
    run: Path, hits: int, better: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    measured(run / "untrained", right(200))
    folder = Path("runs") / "timm-resnet18.a1_in1k-model-01234567"
    measured(folder, right(hits), encoder={"encoder": {"name": BASELINE}})
    comparison = compare([run])
    assert comparison.folders == (run, run / "untrained", folder)
    start, published = comparison.verdict.sentence.split("; ")
    assert start.startswith("Pretraining added 10.0 points")
    assert published.startswith(f"{'better' if better else 'worse'} than the published {BASELINE}")
    assert comparison.verdict.is_better is better
    assert comparison.verdict.commands == {}


def test_several_sets_count_alike(run: Path) -> None:
    """The interval of the mean is that of independent differences."""
    measured(run, right(100), images="textures", sizes={"train": 9, "test": 1000})
    measured(run / "untrained", right(200))
    measured(run / "untrained", right(120), images="textures", sizes={"train": 9, "test": 1000})
    verdict = judged(run)
    assert verdict.start is not None
    assert verdict.start.gain is not None
    assert verdict.start.place == "the mean of textures and flowers17"  # most test images first
    value, low, high = verdict.start.gain
    (up, up_high), (down, down_high) = ends(40, 0), ends(0, 20)
    assert value == pytest.approx((10 - 5) / 2)
    assert low == pytest.approx(2.5 - ((10 - up) ** 2 + (-5 - down) ** 2) ** 0.5 / 2)
    assert high == pytest.approx(2.5 + ((up_high - 10) ** 2 + (down_high + 5) ** 2) ** 0.5 / 2)
    assert f"textures -5.0 [{down:+.1f}, {down_high:+.1f}], flowers17 +10.0" in verdict.basis
    assert "over 1,400 test images" in verdict.basis


def drawn(
    folder: Path, hits: Tensor, seed: int, of: str | None = "all", name: str = "mine"
) -> None:
    """A result on images of a folder without parts, drawn by a seed; older files have no `of`."""
    split = {"by": "class", "share": 0.2, "seed": seed} | ({"of": of} if of else {})
    measured(folder, hits, images=f"{name}, {seed}", set_name=f"{name}@test", split=split)


def test_images_of_one_folder_drawn_by_several_seeds_are_no_two_sets(tmp_path: Path) -> None:
    """The lowest seed is quoted, whatever was measured by it; its interval is that of one set."""
    run, other_name = tmp_path / "flowers", "/elsewhere/copied"
    for folder, hits in ((run, 240), (run / "untrained", 230)):
        drawn(folder, right(hits), 3)
        drawn(folder, right(hits + 99 * (folder == run)), 7, name=other_name)
    (start,), (low, high) = judged(run).comparisons, ends(10, 0)
    assert start.gain == pytest.approx((2.5, low, high))
    assert f"points [{low:.1f}, {high:.1f}] of linear accuracy on mine (drawn by seed 3) over" in (
        judged(run).sentence
    )
    assert "Left out, as its images overlap with those: " in judged(run).basis
    assert judged(run).basis.endswith(f"-{Path(other_name).name} (drawn by seed 7).")


def test_a_whole_set_is_quoted_before_a_part_of_it(run: Path) -> None:
    for folder, count in ((run, 240), (run / "untrained", 200)):
        measured(folder, right(count))
        drawn(folder, right(count + 20 * (folder == run)), 0, of="flowers17")
    (start,) = judged(run).comparisons
    assert start.place == "flowers17 (all of its test images)"
    assert start.sets[0].left_out == ("mine (drawn by seed 0)",)


def test_images_drawn_by_another_seed_are_not_compared(run: Path) -> None:
    (file,) = (run / "evaluations").glob("*.json")
    file.unlink()
    drawn(run, right(240), 5, name="my photos")
    drawn(run / "untrained", right(200), 0, name="my photos")
    verdict = judged(run)
    assert verdict.sentence == (
        "Not compared with the untrained encoder, as other images of my photos were tested: drawn "
        "by seed 0, those of the run drawn by seed 5."
    )
    command = f"mast evaluate {run} --data 'my photos' --untrained --seed 5"
    assert verdict.commands[STARTED_FROM] == command


def test_several_targets_of_a_set_are_one_difference(run: Path) -> None:
    """They are of the same images, so their mean is taken image by image."""

    def targets(*hits: Tensor) -> dict[str, TargetResult]:
        return {
            f"task {at}": TargetResult({"top1": 100 * float(each.mean())}, each={"top1": each})
            for at, each in enumerate(hits)
        }

    measured(run, right(0), targets=targets(right(300), right(100)))
    measured(run / "untrained", right(0), targets=targets(right(200), right(200)))
    (start,) = judged(run).comparisons
    assert start.gain is not None
    assert start.gain.value == pytest.approx(0)
    assert start.gain.low < 0 < start.gain.high  # gained by some images and lost by others
    assert start.place == "flowers17 (mean of 2 targets)"
