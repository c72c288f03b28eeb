"""Every analysis on cases whose answer is known by hand; what a run lacks is said."""

import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from subjects import NAMES, conforms, whole

from mast.analyses import ANALYSES, Images, Subject
from mast.analyses.curves import Curves
from mast.analyses.figure import IN_A_NOTEBOOK, WIDTH
from mast.analyses.masks import MasksAnalysis
from mast.analyses.neighbours import Neighbours


@pytest.mark.parametrize("name", ANALYSES)
@pytest.mark.parametrize("count", [1, 3])  # operators
def test_conformance(name: str, count: int, tmp_path: Path) -> None:
    exempt = torch.tensor([[1.0], [0.0]]).expand(-1, count)
    subject = whole(NAMES[:count], masks=exempt if name == "neighbours" else None)
    conforms(ANALYSES[name].kind(), subject, tmp_path)


def test_masks_that_are_the_same_that_share_nothing_and_that_are_zero() -> None:
    question = MasksAnalysis()
    same = question.compute(whole())
    assert same["correlation"] == pytest.approx(np.ones((3, 3)))
    assert same["own_share"] == pytest.approx(np.full(3, 1 / 3))
    assert "3 of 3 pairs of masks have a cosine above" in question.caption(same)
    apart = question.compute(whole(masks=torch.eye(3)))
    assert apart["correlation"] == pytest.approx(np.eye(3))
    assert apart["own_share"] == pytest.approx(np.ones(3))
    assert "0 of 3 pairs of masks have a cosine above" in question.caption(apart)
    one = question.compute(whole(masks=torch.eye(3) * torch.tensor([1.0, 1.0, 0.0])))
    assert "invert: all zero" in question.caption(one)
    question.draw(question.compute(whole(masks=torch.zeros(2, 3))))


def test_masks_of_which_two_are_alike_and_masks_that_are_blocks() -> None:
    masks = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    arrays = MasksAnalysis().compute(whole(masks=masks))
    assert arrays["correlation"][0, 1] == pytest.approx(1)
    assert arrays["correlation"][0, 2] == pytest.approx(0.5)
    assert abs(list(arrays["order"]).index(0) - list(arrays["order"]).index(1)) == 1
    # Half of the third mask is on a dimension that all share equally, half is its own.
    assert arrays["own_share"][2] == pytest.approx(0.5 + 0.5 / 3)
    assert "most similar are rotate and shear x (1.00)" in MasksAnalysis().caption(arrays)
    # Dimensions are ordered by who holds most of them.
    assert arrays["dimensions"].tolist() == [0, 2, 1]
    masks = torch.ones(4, 3)
    masks[0, 0] = masks[0, 2] = 0
    text = MasksAnalysis().caption(MasksAnalysis().compute(whole(masks=masks)))
    assert text == "Exempt dimensions: 25% from rotate, invert."
    masks[1, 1] = 0.5  # a soft mask is no block
    assert "xempt" not in MasksAnalysis().caption(MasksAnalysis().compute(whole(masks=masks)))


def test_neighbours_are_found_in_the_dimensions_that_are_chosen() -> None:
    """Of four images in two pairs, one dimension knows the shape and the other the color."""
    embedding_ND = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    labels = {"shape": np.array([0, 0, 1, 1]), "color": np.array([0, 1, 0, 1])}
    base = whole()
    images = Images(
        names=tuple("abcd"),
        thumbnails_NPP3=np.zeros((4, 4, 4, 3), np.uint8),
        labels=labels,
        classes=dict.fromkeys(labels, ("one", "other")),
    )
    other = replace(base, name="other", embed=lambda change: embedding_ND * torch.tensor([1, 0]))
    subject = replace(
        base, images=images, embed=lambda change: embedding_ND, beside=(other,),
        mask_DK=torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]),
    )  # fmt: skip
    arrays = Neighbours().compute(subject)
    assert arrays["spaces"].tolist() == [
        "embedding of other", "whole embedding",
        "ignoring rotate and invert", "matching rotate and invert",
    ]  # fmt: skip
    assert arrays["nearest"][:, 0, 0].tolist() == [1, 0, 3, 2]  # by shape
    assert arrays["nearest"][:, 3, 0].tolist() == [2, 3, 0, 1]  # by color
    # All three others count, of which one is alike, whatever the space.
    np.testing.assert_allclose(arrays["shared"], 100 / 3)
    np.testing.assert_allclose(arrays["expected"], 100 / 3)
    (gallery,) = Neighbours().details(arrays).galleries
    assert gallery.columns == 4  # every image, and all others
    assert len(gallery.captions) == len(gallery.pictures_NPP3) == 16
    nothing = Neighbours().compute(base)
    assert nothing["spaces"].tolist() == ["whole embedding"]
    assert "There is no invariance to choose" in Neighbours().caption(nothing)


def test_a_notebook_shows_a_figure() -> None:
    """As an image, by what IPython asks for, without pyplot."""
    png = MasksAnalysis().draw(MasksAnalysis().compute(whole()))._repr_png_()  # type: ignore[attr-defined]
    with Image.open(io.BytesIO(png)) as image:
        assert image.format == "PNG"
        assert image.width == WIDTH * IN_A_NOTEBOOK
        assert image.convert("L").getextrema()[0] < 100  # something is drawn on the white


def test_curves_keep_what_is_not_finite() -> None:
    arrays = Curves().compute(whole())
    assert arrays["epoch"].tolist() == [0.5, 1, 1, 2]
    assert np.isnan(arrays["loss"]).tolist() == [False, True, True, False]
    text = Curves().caption(arrays)
    assert "1 logged losses were not finite" in text
    wide = [axis for axis in Curves().draw(arrays).axes if np.ptp(axis.get_xlim()) > 1]
    assert wide
    assert all(tick == round(tick) for axis in wide for tick in axis.get_xticks().tolist())
    lost = Curves().compute(Subject("run", log=[{"step": 1, "epoch": 1, "loss": math.nan}]))
    assert "never finite" in Curves().caption(lost)


@pytest.mark.parametrize(
    ("name", "subject", "message"),
    [
        ("neighbours", Subject("run"), "needs images"),
        ("curves", Subject("run"), "Nothing was logged"),
        ("masks", whole(masks=torch.full((2, 3), math.nan)), "not finite: the run diverged"),
    ],
)
def test_what_a_run_lacks_is_named(name: str, subject: Subject, message: str) -> None:
    assert message in str(ANALYSES[name].kind().lacking(subject))
