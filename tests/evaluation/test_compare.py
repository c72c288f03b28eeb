"""Runs side by side: paired intervals, and notes on what cannot be compared."""

import math
from pathlib import Path

import pytest
import torch
from rich.console import Console
from scipy.stats import ttest_rel
from tiny_evaluation import measured
from torch import Tensor

from mast.core.errors import UserError
from mast.evaluation.accuracy import class_weights
from mast.evaluation.compare import compare
from mast.evaluation.intervals import tango
from mast.evaluation.paired import Difference
from mast.evaluation.result import TargetResult
from mast.page.tables import main_measures


def gain_of_b(folder: Path) -> Difference:
    """How far the run b is ahead of a by their first measure."""
    (found,) = compare([folder / "b", folder / "a"]).rows[0].gains
    return found


@pytest.fixture
def hits() -> Tensor:
    return torch.rand(500, generator=torch.Generator().manual_seed(0)) < 0.6


def test_the_interval_is_of_the_difference(tmp_path: Path, hits: Tensor) -> None:
    better = hits.clone()
    better[(~hits).nonzero()[:10]] = True  # ten images more, none lost
    measured(tmp_path / "a", hits)
    measured(tmp_path / "b", better)
    gain = gain_of_b(tmp_path)
    assert gain.value == pytest.approx(2.0)
    # Each accuracy alone is uncertain by four points; the gain is not.
    low, high = tango(10, 0, 500)
    assert (gain.low, gain.high) == pytest.approx((100 * low, 100 * high))
    assert 1 < gain.low < gain.high < 4


def test_pieces_of_files_count_as_their_files(tmp_path: Path) -> None:
    """Ten tiles of one scene that are right now say less than one tile of each of ten scenes."""
    hits = (torch.arange(400) % 2).float()
    clear = []
    for name, gained_N in (("spread", torch.arange(0, 400, 40)), ("one", torch.arange(0, 20, 2))):
        better, files = hits.clone(), {"top1": torch.arange(400) // 20}
        better[gained_N] = 1
        for run, credit in (("a", hits), ("b", better)):
            values = {"top1": 100 * float(credit.double().mean())}
            target = TargetResult(values, each={"top1": credit}, files=files)
            measured(tmp_path / name / run, hits, targets={"class": target})
        clear.append(gain_of_b(tmp_path / name).is_better)
    assert clear == [True, None]


@pytest.mark.parametrize("others", [False, True])
def test_a_measure_that_is_no_mean_is_paired_by_its_draws(
    tmp_path: Path, hits: Tensor, others: bool
) -> None:
    """Unless tiles were cut from other files, of which other ones were drawn."""
    for run, shift in (("a", 0.0), ("b", 0.1)):
        draws = {"map_area": torch.linspace(0, 0.5, 50) + shift}
        target = TargetResult({"map_area": 25 + 100 * shift}, {}, {}, draws)
        files = {"test": 40 + (others and run == "b")}
        measured(tmp_path / run, hits, protocol="svm", targets={"objects": target}, files=files)
    (gain,) = compare([tmp_path / "b", tmp_path / "a"]).rows[0].gains
    expected = (10, -math.inf, math.inf) if others else pytest.approx((10, 10, 10), abs=1e-4)
    assert (gain.value, gain.low, gain.high) == expected


def test_draws_of_images_to_learn_from_are_few(tmp_path: Path, hits: Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    each = [0.6 + 0.05 * torch.rand(10, generator=generator) for _ in range(2)]
    for run, of_draws in zip(("a", "b"), each, strict=True):
        value = 100 * float(of_draws.double().mean())  # older files name no method of intervals
        targets = {"class": TargetResult({"5_a_class": value}, each={"5_a_class": of_draws})}
        measured(tmp_path / run, hits, protocol="fewshot", targets=targets)
    gain = gain_of_b(tmp_path)
    expected = ttest_rel(each[1].double(), each[0].double()).confidence_interval(0.95)
    assert (gain.low, gain.high) == pytest.approx((100 * expected.low, 100 * expected.high))


def test_a_mean_per_class_is_paired_by_the_weights_of_images(tmp_path: Path, hits: Tensor) -> None:
    better = hits.clone()
    better[(~hits).nonzero()[:10]] = True  # of the rare class
    weight_N = class_weights((torch.arange(500) < 100).long()).float()
    for run, of_run in (("a", hits.float()), ("b", better.float())):
        values = {"mean_per_class": weight_N * of_run, "top1": of_run}
        target = TargetResult(
            {name: 100 * float(each_N.double().mean()) for name, each_N in values.items()},
            each={"top1": of_run}, weights={"mean_per_class": weight_N},
        )  # fmt: skip
        measured(tmp_path / run, of_run, targets={"class": target}, metric="mean_per_class")
    gain = gain_of_b(tmp_path)
    assert gain.value == pytest.approx(5)  # a tenth of one of two classes
    # Fewer than 200 images of equal weight would vary as much.
    low, high = tango(10, 0, 200)
    assert (gain.low, gain.high) == pytest.approx((100 * low, 100 * high), abs=0.5)


def test_chance_and_what_the_field_reports_first(tmp_path: Path, hits: Tensor) -> None:
    values = {"top1": 60.0, "mean_per_class": 61.0}
    targets = {"class": TargetResult(values, by_chance={"top1": 25.0})}
    measured(tmp_path / "a", hits)
    measured(tmp_path / "b", hits, targets=targets, metric="mean_per_class")
    both = compare([tmp_path / "b", tmp_path / "a"])
    known = {row.heading[3]: row.chance for row in both.rows}
    assert known == {"mean per class": None, "top-1": 25.0}
    assert next(iter(known)) == "mean per class"
    assert "chance" in both.table().columns[1].cells
    frame = both.to_pandas()
    assert len(frame) == len(both) == 3  # an encoder that lacks a measure has no row of it
    assert frame["value"].tolist()[:2] == [61, 60]
    told = main_measures(both, ["MAST"] * 2)
    assert [row[0].text for row in told.rows] == ["class"]
    assert "chance" in [column.name for column in told.columns]
    assert "chance" not in compare([tmp_path / "a"]).table().columns[1].cells


def test_what_differs_becomes_a_note(tmp_path: Path, hits: Tensor) -> None:
    measured(tmp_path / "a", hits)
    measured(tmp_path / "a", hits, "knn")
    other = {"extraction": {"size": 8, "device": "cuda"}, "protocol": {"seed": 0, "resamples": 50}}
    seen = {"space": {"x": 1}}
    measured(tmp_path / "b", hits, settings=other, fingerprints={"test": "b"}, encoder=seen)
    measured(tmp_path / "c", hits[:400], images="others", set_name="flowers17/test")
    comparison = compare([tmp_path / name for name in "abc"])
    rows = {row.heading[0]: row for row in reversed(comparison.rows)}
    assert rows["linear"].gains[0] is not None
    assert rows["linear"].gains[1] is None
    assert rows["knn"].values[1:] == (None, None)
    assert comparison.notes == (
        "linear on flowers17-test, a and b: other pixels of test (another size, or changed)",
        "linear on flowers17-test, a and b: other settings: extraction.size 32 and 8; x None and 1",
    )


def test_test_images_that_were_changed_are_not_paired(tmp_path: Path, hits: Tensor) -> None:
    """Their names, labels and size are the same; their pixels are not."""
    measured(tmp_path / "a", hits)
    measured(tmp_path / "b", ~hits, fingerprints={"test": "b"})
    comparison = compare([tmp_path / "a", tmp_path / "b"])
    (row,) = comparison.rows
    assert row.gains[0] is not None
    assert row.gains[0].is_better is None
    assert comparison.notes == (
        "linear on flowers17-test, a and b: no interval of the difference, as the test images were "
        "changed: evaluate both again",
    )


def test_runs_are_called_by_what_tells_them_apart(tmp_path: Path, hits: Tensor) -> None:
    runs = [tmp_path / name / "run" for name in "xy"]
    for run in runs:
        measured(run, hits)
    assert compare(runs).runs == ("x/run", "y/run")
    measured(tmp_path / "z" / "spaces" / "all", hits)
    assert compare([tmp_path / "z" / "spaces" / "all", runs[0]]).runs == ("z/all", "run")
    for refused, message in (
        ([], "name the runs to compare"),
        ([runs[0], tmp_path / "b"], "has no evaluations: measure it first"),
        ([runs[0], runs[0]], "given twice"),
    ):
        with pytest.raises(UserError, match=message):
            compare(refused)


def test_published_weights_are_added_and_all_fits_80_columns(
    tmp_path: Path, hits: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    set_name = "flowers-of-many-countries-and-gardens"
    encoder = {"source": "timm:resnet18", "weights": {"sha256": "1"}}
    for name, of in (("run", {}), ("resnet18-a-name-of-more-letters-than-fit", encoder)):
        measured(Path("runs") / name, hits, images=set_name, encoder=of)
    comparison = compare("runs/run")
    assert len(comparison.folders) == 2
    console = Console(width=80)
    with console.capture() as captured:
        for part in comparison.shown():
            console.print(part)
    assert max(map(len, captured.get().splitlines())) <= 80
    assert captured.get().count(" interval ") == 1  # one table


def test_sets_whose_names_end_alike_have_files_of_their_own(tmp_path: Path, hits: Tensor) -> None:
    paths = [
        measured(tmp_path, hits, set_name=name, images=images).write(tmp_path)
        for name, images in (
            ("/one/flowers/test", "these"),
            ("/two/flowers/test", "others"),
            ("flowers/test", "these"),  # the same images by another name
        )
    ]
    assert paths[0].name == "linear-flowers-test.json" == paths[2].name
    assert paths[1].name.startswith("linear-flowers-test-")
    assert len(list((tmp_path / "evaluations").glob("*.json"))) == 2
