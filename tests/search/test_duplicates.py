"""Test images that were learned from are counted, with a note beside every score."""

from dataclasses import replace
from pathlib import Path

import imagehash
import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter, ImageOps
from tiny import stacked
from tiny_evaluation import QUICK, Colors, tiny_set

from mast.data import CanvasSet, open_photos
from mast.data.hashes import perceptual_hashes
from mast.data.pixels import Pixels
from mast.evaluation.compare import compare
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import count_copies, evaluate_encoder
from mast.evaluation.result import Result, Results
from mast.search.duplicates import candidates, copies_within, grouped


def holding(canvases: CanvasSet, others: CanvasSet, count: int) -> CanvasSet:
    """A set whose first images are those of another."""
    images = stacked(canvases)
    images[:count] = stacked(others)[:count]
    return replace(canvases, pixels=Pixels.of(images))


@pytest.fixture
def overlapping(data: EvaluationData) -> EvaluationData:
    """Five of 24 test images are in train, two of these in val."""
    train, val = (holding(part, data.test, n) for part, n in ((data.train, 5), (tiny_set(6), 2)))
    return replace(data, train=train, val=replace(val, fingerprint="val"))


def test_copies_are_counted_by_their_pixels(
    data: EvaluationData, overlapping: EvaluationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert count_copies(data) == {"train": 0, "val": 0}
    assert count_copies(overlapping) == {"train": 5, "val": 2}
    assert count_copies(replace(overlapping, val=None)) == {"train": 5}
    thrice = data.test.subset([0, 0, 0, 1])
    assert count_copies(replace(overlapping, test=thrice)) == {"train": 4, "val": 4}
    assert count_copies(replace(data, val=data.test)) == {"train": 0, "val": 24}
    same = property(lambda self: np.zeros(len(self.size_N2), np.uint32))
    monkeypatch.setattr(Pixels, "checksum_N", same)  # all in common, and no copies
    assert count_copies(data) == {"train": 0, "val": 0}


def test_copies_are_noted_beside_the_score(
    encoder: Colors, overlapping: EvaluationData, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (result,) = evaluate_encoder(encoder, overlapping, ["knn"], QUICK)
    assert "5 of 24 test images are in train too, pixel for pixel" in caplog.text
    assert "2 of 24 test images are in val too" in caplog.text
    file = result.write(tmp_path)
    assert Result.read(file).duplicates == {"train": 5, "val": 2}
    assert repr(Results([result, result])).count("5 of 24 test images are in train") == 1
    notes = compare(tmp_path).notes
    assert "tiny-2: 5 of 24 test images are in train too, pixel for pixel" in notes
    evaluate_encoder(encoder, replace(overlapping, val=overlapping.test), ["knn"], QUICK)
    assert "24 of 24 test images are in val too" in caplog.text


# ------------------------------------------------------------------------------------ within a set


def test_a_group_holds_copies_of_its_first_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    angle_N = torch.tensor([0.0, 40.0, 8.0, 130.0, 4.0]).deg2rad()
    half_N2 = torch.stack([angle_N.cos(), angle_N.sin()], dim=1)
    x_ND = torch.cat([half_N2, -half_N2])  # their mean is zero
    cosine_NN = x_ND @ x_ND.T
    above = float(min(cosine_NN[0, 4], cosine_NN[4, 2])) - 1e-4
    assert cosine_NN[0, 2] < above  # only by the one between them
    for rows in (1024, 2):
        monkeypatch.setattr("mast.search.nearest.ROWS", rows)
        monkeypatch.setattr("mast.search.nearest.CHUNK_ELEMENTS", 3 * rows)
        assert grouped(x_ND, above).tolist() == [0, 1, 2, 3, 0, 5, 6, 7, 8, 5]
        assert grouped(x_ND, above, None, [(0, 4)]).tolist()[:5] == [0, 1, 2, 3, 2]
    joined_N = np.array([0, 1, 2, 1, 2, 5, 6, 7, 8, 9])  # groups that are there move whole
    assert grouped(x_ND, above, None, (), joined_N).tolist() == [0, 1, 2, 1, 2, 5, 6, 7, 8, 5]


@pytest.mark.parametrize("margin", [None, 0.2])
def test_an_index_finds_the_groups_that_all_pairs_give(
    margin: float | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = torch.Generator().manual_seed(0)
    x_ND = torch.randn(2000, 32, generator=generator)
    x_ND[1000:1200] = x_ND[:200] + 0.03 * torch.randn(200, 32, generator=generator)
    exact_N = grouped(x_ND, 0.99, margin, [(3, 1003)])
    assert (exact_N[1000:1200] == np.arange(200)).sum() == 199
    monkeypatch.setattr("mast.search.duplicates.MANY", 100)
    assert np.array_equal(grouped(x_ND, 0.99, margin, [(3, 1003)]), exact_N)
    assert "% of the 32 nearest of 256" in capsys.readouterr().err
    hash_TNB = torch.where(torch.randn(8, 2000, 64, generator=generator) > 0, 1.0, -1.0)
    hash_TNB[3, 1500:1600] = hash_TNB[0, 500:600]
    hash_TNB[3, 1500:1600, [0, 20, 40, 60]] *= -1
    hash_TNB[0, 700:800], hash_TNB[:, 900] = 0, 0  # these say nothing
    expected = {
        *((at, at + 1000) for at in range(200)),
        *((at, at + 1000) for at in range(500, 600)),
    }
    for many in (100, 10_000):
        monkeypatch.setattr("mast.search.duplicates.MANY", many)
        assert {*candidates(x_ND, hash_TNB)} >= expected


def test_exact_copies_need_no_features() -> None:
    canvases = tiny_set(6).subset([3, 4, 3, 5, 4, 3])
    found = copies_within(canvases, torch.zeros(6, 4))
    assert [copy[:4] for copy in found] == [
        (1, 0, "first", 1), (1, 2, "exact", 1), (1, 5, "exact", 1),
        (2, 1, "first", 1), (2, 4, "exact", 1),
    ]  # fmt: skip


def test_flat_images_are_copies_by_features_or_hashes(tmp_path: Path) -> None:
    """Without detail there is no map: smooth images, one blurred, one mirrored, some of a color."""
    draw = np.random.default_rng(0)
    coarse = [Image.fromarray(draw.integers(0, 12, (6, 6, 3), np.uint8)) for _ in range(20)]
    images = [each.resize((48, 48), Image.Resampling.BICUBIC) for each in coarse]
    images += [images[4].filter(ImageFilter.GaussianBlur(1)), ImageOps.mirror(images[5])]
    images += [Image.new("RGB", (48, 48), color) for color in ("white", "black", "black")]
    images += images[20:21]  # a copy of a copy
    for at, image in enumerate(images):
        image.save(tmp_path / f"{at:02d}.png")
    canvases = open_photos(str(tmp_path), 32)
    x_ND = torch.eye(len(images))
    x_ND[19] = x_ND[3]
    found = copies_within(canvases, x_ND)
    assert [copy[:3] for copy in found] == [
        (1, 3, "first"), (1, 19, "near"), (2, 4, "first"), (2, 20, "near"), (2, 25, "exact"),
        (3, 5, "first"), (3, 21, "edited"), (4, 23, "first"), (4, 24, "exact"),
    ]  # fmt: skip
    assert [copy.position for copy in copies_within(canvases, x_ND, "exact")] == [20, 25, 23, 24]


def test_hashes_are_those_of_imagehash() -> None:
    draw = np.random.default_rng(0)
    coarse = [Image.fromarray(draw.integers(0, 256, (5, 7, 3), np.uint8)) for _ in range(9)]
    images = [each.resize((70, 50), Image.Resampling.BICUBIC) for each in coarse]
    for image in images:
        for way, bits_B in enumerate(perceptual_hashes(np.asarray(image))):
            turned = (image if way < 4 else ImageOps.mirror(image)).rotate(90 * way, expand=True)
            assert np.array_equal(bits_B > 0, imagehash.phash(turned).hash.ravel())


def test_a_hash_with_few_informative_bits_joins_nothing() -> None:
    """Barcodes along either axis, a blank page; a face, whose halves mirror each other, has half
    of its bits."""
    draw = np.random.default_rng(0)
    bars = draw.integers(0, 2, (2, 40), np.uint8).repeat(3, axis=1) * 255
    axes = [bars[0][None].repeat(70, 0), bars[1][:, None].repeat(70, 1)]
    half = np.asarray(Image.fromarray(draw.integers(0, 256, (6, 3), np.uint8)).resize((48, 48)))
    images = [*axes, np.full((9, 9), 200, np.uint8), np.concatenate([half, half[:, ::-1]], axis=1)]
    shown_M8 = [abs(perceptual_hashes(np.dstack([each] * 3))).mean(1).tolist() for each in images]
    assert shown_M8 == [[0] * 8] * 3 + [[1] * 8]


def test_copies_stand_out_from_what_is_around_them() -> None:
    """Pairs and a group of six at a cosine that many images have to others."""
    generator = torch.Generator().manual_seed(0)
    x_ND = torch.randn(60, 64, generator=generator)
    x_ND[:20] += 1.5 * torch.randn(64, generator=generator)  # a crowd, in which all are alike
    noise_ND = torch.randn(8, 64, generator=generator)
    x_ND[50], x_ND[51] = x_ND[30] + 0.7 * noise_ND[0], x_ND[31] + 0.7 * noise_ND[1]
    x_ND[52:57] = x_ND[32] + 0.5 * noise_ND[2:7]
    group_N = grouped(x_ND, above=0.95, margin=0.2)
    pairs = {(30, 50), (31, 51), *((32, at) for at in range(52, 57))}
    assert {(int(first), at) for at, first in enumerate(group_N) if first != at} == pairs
    assert grouped(x_ND[:9], above=0.95, margin=0.2).tolist() == list(range(9))  # too few to say
