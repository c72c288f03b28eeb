"""Every analysis on cases whose answer is known by hand; what a run lacks is said."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import mast
from mast.analyze import ANALYSES, Analysis, Subject
from mast.analyze.curves import Curves
from mast.analyze.invariance import MAGNITUDES, Invariance
from mast.analyze.masks import Masks
from mast.cli import main
from mast.core.errors import UserError

NAMES = ("rotate", "shear_x", "invert")


def whole(operators: tuple[str, ...] = NAMES, masks: Tensor | None = None) -> Subject:
    """A run that has everything; its embedding is turned by as many radians as the magnitude."""

    def embed(change: tuple[str, float | None] | None) -> Tensor:
        angle = 0.0 if change is None or change[0] != "rotate" else float(change[1] or 0)
        one = torch.tensor([[math.cos(angle), math.sin(angle)]])
        return torch.cat([one, 3 * one])

    mask_DK = torch.ones(2, len(operators)) if masks is None else masks
    log = [
        {"step": 1, "epoch": 0.5, "loss": 4.0, "lr": 0.1, "stat/mask_active_share": 0.9},
        {"step": 2, "epoch": 1.0, "loss": math.nan, "lr": 0.1},
        {"step": 2, "epoch": 1, "online/knn": 30.0, "online/effective_rank": 12.0},
        {"step": 3, "warning": "variance collapse: …"},
        {"step": 4, "epoch": 2.0, "loss": 2.0, "lr": 0.0},
    ]
    return Subject(
        "run", trained_with=operators, operators=operators, mask_DK=mask_DK, log=log, embed=embed
    )


@pytest.mark.parametrize("name", ANALYSES)
@pytest.mark.parametrize("count", [1, 3])
def test_conformance(name: str, count: int, tmp_path: Path) -> None:
    analysis = ANALYSES[name]()
    subject = whole(NAMES[:count])
    assert issubclass(ANALYSES[name], Analysis)
    assert analysis.lacking(subject) is None
    arrays = analysis.compute(subject)
    assert analysis.title
    assert analysis.caption(arrays).endswith(".")
    for key in arrays:
        assert arrays[key].dtype != object
    # What is kept on disk draws the same figure.
    np.savez(tmp_path / "arrays.npz", **arrays)  # type: ignore[arg-type]
    with np.load(tmp_path / "arrays.npz") as kept:
        figure = analysis.draw(dict(kept))
    figure.savefig(tmp_path / "figure.svg")
    assert "<svg" in (tmp_path / "figure.svg").read_text()


def test_masks_that_are_the_same_and_masks_that_share_nothing() -> None:
    same = Masks().compute(whole())
    assert same["correlation"] == pytest.approx(np.ones((3, 3)))
    assert same["own_share"] == pytest.approx(np.full(3, 1 / 3))
    assert "one subspace serves every operator" in Masks().caption(same)
    apart = Masks().compute(whole(masks=torch.eye(3)))
    assert apart["correlation"] == pytest.approx(np.eye(3))
    assert apart["own_share"] == pytest.approx(np.ones(3))
    assert "every operator has its own subspace" in Masks().caption(apart)


def test_masks_of_which_two_are_alike() -> None:
    masks = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    arrays = Masks().compute(whole(masks=masks))
    assert arrays["correlation"][0, 1] == pytest.approx(1)
    assert arrays["correlation"][0, 2] == pytest.approx(0.5)
    assert sorted(arrays["order"].tolist()[:2]) in ([0, 1], [0, 2], [1, 2])
    assert abs(list(arrays["order"]).index(0) - list(arrays["order"]).index(1)) == 1
    # Half of the third mask is on a dimension that all share equally, half is its own.
    assert arrays["own_share"][2] == pytest.approx(0.5 + 0.5 / 3)
    text = Masks().caption(arrays)
    assert "shear x and rotate take the most alike dimensions (cosine 1.00)" in text
    assert "invert is the least like the others (mean 0.50)" in text
    # Dimensions are ordered by who holds most of them.
    assert arrays["dimensions"].tolist() == [0, 2, 1]


def test_similarity_of_an_embedding_that_turns() -> None:
    masks = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    arrays = Invariance().compute(whole(masks=masks))
    assert arrays["operators"].tolist() == ["rotate", "shear_x"]  # invert has no magnitude
    assert arrays["subspaces"].tolist() == [*NAMES, "whole embedding"]
    cosines = [math.cos(magnitude) for magnitude in MAGNITUDES]
    assert arrays["similarity"][0, 0] == pytest.approx(cosines)
    assert arrays["similarity"][0, 3] == pytest.approx(cosines)
    assert arrays["similarity"][0, 1] == pytest.approx(np.ones(5))  # its one dimension only shrinks
    assert arrays["similarity"][0, 2] == pytest.approx(np.zeros(5))  # it was 0 before
    assert arrays["similarity"][1] == pytest.approx(np.ones((4, 5)) - [[0], [0], [1], [0]])
    assert arrays["margin"] == pytest.approx(np.zeros((2, 4, 5)), abs=1e-7)  # all images alike


def test_other_runs_stand_beside() -> None:
    arrays = Invariance().compute(replace(whole(), beside=(whole(()),)))
    assert arrays["beside"].tolist() == ["run"]
    assert arrays["similarity_beside"][0, 0] == pytest.approx([math.cos(m) for m in MAGNITUDES])
    assert arrays["similarity_beside"].shape == arrays["margin_beside"].shape == (1, 2, 5)


def test_curves_keep_what_is_not_finite() -> None:
    arrays = Curves().compute(whole())
    assert arrays["epoch"].tolist() == [0.5, 1, 1, 2]
    assert np.isnan(arrays["loss"]).tolist() == [False, True, True, False]
    text = Curves().caption(arrays)
    assert "from 4.00 to 2.00" in text
    assert "ended at 30.0 %" in text
    assert "1 logged losses were not finite" in text
    lost = Curves().compute(Subject("run", log=[{"step": 1, "epoch": 1, "loss": math.nan}]))
    assert "never finite" in Curves().caption(lost)


@pytest.mark.parametrize(
    ("name", "subject", "message"),
    [
        ("curves", Subject("run"), "Nothing was logged"),
        ("masks", Subject("run"), "no masks: only MAST"),
        ("masks", whole(masks=torch.full((2, 3), math.nan)), "not finite: the run diverged"),
        ("invariance", Subject("run"), "no images to look at"),
        ("invariance", whole(("invert",)), "None of its operators has a magnitude"),
    ],
)
def test_what_a_run_lacks_is_said(name: str, subject: Subject, message: str) -> None:
    said = ANALYSES[name]().lacking(subject)
    assert said is not None
    assert message in said


def test_by_command(
    tiny: Callable[..., mast.PretrainConfig],
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours = mast.pretrain(tiny(epochs=1, out=str(tmp_path / "ours")))
    theirs = mast.pretrain(tiny("vicreg5_small", epochs=1, out=str(tmp_path / "theirs")))
    command = ["analyze", str(ours.path), "--data", str(photos / "test"), "--images", "5"]
    assert main([*command, "--beside", str(theirs.path)]) == 0
    for name in ANALYSES:
        for kind in ("npz", "png", "svg"):
            assert (ours.analysis / f"{name}.{kind}").is_file()
    with np.load(ours.analysis / "invariance.npz") as arrays:
        assert arrays["beside"].tolist() == ["theirs"]
        assert np.isfinite(arrays["similarity"]).all()
    first = (ours.analysis / "invariance.npz").read_bytes()
    assert main([*command, "--beside", str(theirs.path), "--analyses", "invariance"]) == 0
    assert (ours.analysis / "invariance.npz").read_bytes() == first
    capsys.readouterr()
    assert main(["analyze", str(theirs.path), "--data", str(photos / "test")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "This run has no masks: only MAST learns them." in shown
    assert sorted(path.name for path in theirs.analysis.glob("*.npz")) == ["curves.npz"]
    with pytest.raises(UserError, match=r"unknown analysis 'mask'\. Did you mean 'masks'"):
        mast.analyze(ours.path, analyses=["mask"])
    with pytest.raises(UserError, match="is not a run folder"):
        mast.analyze(tmp_path)
