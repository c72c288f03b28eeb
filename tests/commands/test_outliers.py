"""`mast outliers`: images that fit in least, and labels that were changed."""

import csv
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from pages import shown_on
from PIL import Image
from tiny import Pooled, write_images
from torch import Tensor, nn

import mast
from mast.augment import center_views
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.data import open_canvas
from mast.models import load_encoder


@pytest.fixture(autouse=True)
def _few_penalties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.evaluation.label_errors.PENALTIES", (0.1,))


def test_outliers(
    ours: RunFolder, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, data = tmp_path / "ranked.csv", str(photos / "test")
    assert main(["outliers", data, "--encoder", str(ours.path), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.strip().endswith("ranked.csv")
    assert "labels may be wrong" in shown
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "score", "distance", "label", "suggested", "quality"]
    assert len(rows) == 24
    scores, values = ([float(row[name]) for row in rows] for name in ("score", "distance"))
    assert scores == sorted(scores, reverse=True)
    assert (scores[0], scores[-1]) == (1, 0)
    assert values == sorted(values, reverse=True)
    assert all(row["path"].startswith(f"{row['label']}/") for row in rows)
    assert all(0 <= float(row["quality"]) <= 1 for row in rows)
    one = next((photos / "test").rglob("*.*"))
    (tmp_path / "same").mkdir()
    for name in ("0", "1"):
        shutil.copy(one, tmp_path / "same" / f"{name}{one.suffix}")
        with pytest.raises(UserError, match="two or more different images"):
            mast.outliers(tmp_path / "same", ours.path)


def test_distances_by_hand(theirs: RunFolder, photos: Path, tmp_path: Path) -> None:
    """From the set itself and from other images."""
    encoder = load_encoder(theirs.path)
    elsewhere = write_images(tmp_path / "elsewhere", 12, side=48)

    def features(folder: Path) -> tuple[Sequence[str], Tensor]:
        canvases = open_canvas(str(folder), encoder.size)
        images = center_views(canvases.batch(np.arange(len(canvases))), encoder.size)
        with torch.no_grad():
            return canvases.identifiers, F.normalize(encoder(images))

    paths, query_MD = features(photos / "test")
    for known, nearest in ((photos / "test", 5), (elsewhere, 4)):
        similarity_MN = (query_MD @ features(known)[1].T).sort(dim=1, descending=True).values
        other = {} if known == photos / "test" else {"known": str(known)}
        columns = mast.outliers(str(photos / "test"), theirs.path, labels=False, **other).columns
        assert list(columns) == ["path", "score", "distance"]
        found = dict(zip(columns["path"], columns["distance"], strict=True))
        expected = dict(zip(paths, (1 - similarity_MN[:, nearest]).tolist(), strict=True))
        assert found == pytest.approx(expected, abs=1e-5)


def test_values_mean_the_same_in_both_sets(tmp_path: Path) -> None:
    """Known images up to 4000, others up to 900, which would have another range by themselves."""
    draw = np.random.default_rng(0)
    for name, sets in [("dark", ("known", "data"))] * 8 + [("bright", ("known",))] * 8:
        top, at = (900 if name == "dark" else 4000), draw.integers(1 << 30)
        values = draw.integers(0, top, (32, 32, 3), dtype=np.uint16)
        for folder in sets:
            (tmp_path / folder).mkdir(exist_ok=True)
            np.save(tmp_path / folder / f"{name}{at}.npy", values)
    module = nn.Sequential(Pooled(), nn.Linear(48, 48))
    both, few = (
        dict(zip(columns["path"], columns["distance"], strict=True))
        for columns in (
            mast.outliers(tmp_path / data, module, size=32, known=tmp_path / "known").columns
            for data in ("known", "data")
        )
    )
    assert few == pytest.approx({name: both[name] for name in few}, abs=1e-6)


def test_changed_labels_are_found(tmp_path: Path) -> None:
    """Each class has a color; three images lie in the folder of another class, one in its own."""
    folder = write_images(tmp_path / "set", 90)
    for at, wrong in ((0, 1), (31, 2), (62, 0)):
        source = folder / f"class{at % 3}" / f"{at:03d}.jpg"
        source.rename(folder / f"class{wrong}" / f"wrong{at}.jpg")
    (folder / "rare").mkdir()
    shutil.copy(folder / "class0" / "003.jpg", folder / "rare" / "one.jpg")
    page = tmp_path / "page.html"
    listing = mast.outliers(folder, "timm:test_resnet", page, size=32, untrained=True)
    columns = listing.columns
    suggested = {
        path: name for path, name in zip(columns["path"], columns["suggested"], strict=True) if name
    }
    wrong = {"class1/wrong0.jpg": "class0", "class2/wrong31.jpg": "class1"}
    wrong["class0/wrong62.jpg"] = "class2"
    assert wrong.items() <= suggested.items()
    _, rows = listing.sections.values()
    assert {columns["path"][row] for row in rows[:3]} == wrong.keys()
    assert len(rows) == len(suggested) <= 6
    quality = dict(zip(columns["path"], columns["quality"], strict=True))
    assert np.isnan(quality["rare/one.jpg"])
    assert all(path.startswith(f"{label}/") for path, label in
               zip(columns["path"], columns["label"], strict=True))  # fmt: skip
    far, suspects = shown_on(page)["views"]
    assert len(far["rows"][0]["tiles"]) == len(columns["path"])
    assert suspects["rows"][0]["heading"] == "Labelled class1, perhaps class0"


@pytest.mark.parametrize("copies", [0, 1, 5])
def test_copies_count_once(tmp_path: Path, copies: int) -> None:
    """An odd image stays the farthest, and its wrong label suspect, however often it is there."""
    draw = np.random.default_rng(0)
    coarse = draw.normal([60] * 30 + [190] * 30, 4, (6, 6, 3, 60)).clip(0, 255).astype(np.uint8)
    for at in range(60):
        file = tmp_path / f"{'ab'[at // 30]}/{at}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(coarse[..., at]).resize((48, 48), Image.Resampling.BICUBIC).save(file)
    odd = Image.fromarray(draw.integers(150, 256, (6, 6, 3), np.uint8)).resize((48, 48))
    for at in range(copies + 1):  # the first two have the same pixels
        odd.save(tmp_path / f"a/odd{at}.{'png' if at < 2 else 'jpg'}")
    table = mast.outliers(tmp_path, Pooled(), size=32).columns
    assert {path[:5] for path in table["path"][: copies + 1]} == {"a/odd"}
    assert set(table["suggested"][: copies + 1]) == {"b"}
    assert set(table["suggested"][copies + 1 :]) == {""}


def test_tiles_are_judged_by_probes_that_saw_no_other_of_their_scene(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in ("a/0", "a/1", "a/2", "b/3", "b/4", "c/5"):
        file = tmp_path / "scenes" / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (16, 24, 3), np.uint8)).save(file)
    table = mast.outliers(f"{tmp_path / 'scenes'}#tile=8", Pooled(), size=8).columns
    assert len(table["path"]) == 36
    rows = zip(table["path"], table["quality"], strict=True)
    judged = {path[:3] for path, quality in rows if np.isfinite(quality)}
    assert judged == {"a/0", "a/1", "a/2", "b/3", "b/4"}, "of c there is one file"
