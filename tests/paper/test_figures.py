"""Every figure of the paper on cases whose answer is known by hand; what a run lacks is said."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from subjects import NAMES, conforms, drawn_pairs, whole

from mast.analyses import Images, Subject
from mast.analyses.neighbours import Neighbours
from mast.core.errors import UserError
from paper.analyses import FIGURES
from paper.analyses.advice import AFFORDS, NEEDS, OPEN, UNKNOWN, Advice, verdict
from paper.analyses.invariance import MAGNITUDES, Invariance
from paper.analyses.predicted_operators import Pairs, PredictedOperators
from paper.analyses.predictions import Predictions
from paper.analyses.subspaces import SubspacesAnalysis
from paper.analyses.uncertainty import Uncertainty

FEW = replace(whole().images, names=("a", "b", "c"))


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("count", [1, 3])  # operators
def test_conformance(name: str, count: int, tmp_path: Path) -> None:
    subject = whole(NAMES[:count])
    if name == "predicted_operators":  # images enough for a regression
        images = replace(subject.images, names=tuple(f"{at}.png" for at in range(70)))
        subject = replace(
            subject, images=images, extras={"pairs": lambda: drawn_pairs(70, NAMES[:count])}
        )
    conforms(FIGURES[name].kind(), subject, tmp_path)


def test_what_a_block_shows_is_predicted_from_it_alone() -> None:
    exempt = torch.tensor([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])  # the first dimension from the first
    subject = replace(whole(masks=exempt), extras={"pairs": lambda: drawn_pairs(400, NAMES)})
    arrays = PredictedOperators().compute(subject)
    names = ["representation", "whole embedding", "ignoring rotate", "matching rotate"]
    assert arrays["spaces"].tolist() == names
    assert arrays["widths"].tolist() == [1, 2, 1, 1]
    assert arrays["block"].tolist() == [3, -1, -1]
    explained = arrays["explained"]
    assert explained[:2, [1, 3]] == pytest.approx(np.full((2, 2), 100), abs=0.5)
    assert explained[:2, [0, 2]] == pytest.approx(np.zeros((2, 2)), abs=4)
    assert np.isnan(explained[2]).all()  # nothing varies
    assert arrays["direction"][0, 3] == pytest.approx([97, 100, 100], abs=3)
    assert arrays["direction"][0, 0] == pytest.approx([50, 50, 50], abs=10)
    assert PredictedOperators().caption(arrays).endswith("Nothing to predict: invert.")
    # Soft masks that are wide everywhere leave nothing out, so there is no block to speak of.
    soft = PredictedOperators().compute(
        replace(subject, mask_DK=torch.tensor([[0.9, 1.0, 1.0]] * 2))
    )
    assert soft["block"].tolist() == [-1, -1, -1]


def test_a_turn_of_hue_is_predicted_and_half_of_what_has_as_much_noise() -> None:
    draw = np.random.default_rng(0)
    image_P = np.tile(np.arange(500), 4)
    hue_P, turn_P = draw.uniform(0, 2 * np.pi, (2, len(image_P)))
    circle = [np.stack([np.cos(at), np.sin(at)], 1) for at in (hue_P, hue_P + turn_P)]
    drawn_P1 = draw.standard_normal((len(image_P), 1))
    noisy_P1 = drawn_P1 + draw.standard_normal(drawn_P1.shape)
    hidden_PT = np.concatenate([drawn_P1, np.roll(drawn_P1, 1, axis=0)], axis=1)
    hidden_PT[np.abs(drawn_P1[:, 0]) > 1, 1] = np.nan  # shown where the first is small
    pairs = Pairs(
        image_P,
        (torch.zeros(len(image_P), 1), torch.from_numpy(noisy_P1)),
        (torch.from_numpy(circle[0]), torch.from_numpy(circle[1])),
        {
            "rotate": np.stack([np.sin(turn_P), np.cos(turn_P)], 1), "shear_x": drawn_P1,
            "invert": hidden_PT,
        },
    )  # fmt: skip
    subject = replace(whole(), mask_DK=None)
    arrays = PredictedOperators().compute(replace(subject, extras={"pairs": lambda: pairs}))
    assert arrays["explained"][0, 1] == pytest.approx(100, abs=0.5)
    assert arrays["explained"][1, 0] == pytest.approx(50, abs=4)
    assert arrays["margin"][1, 0] == pytest.approx(100 * 1.96 * 0.5**0.5 / 2000**0.5, abs=1.2)
    assert arrays["explained"][[1, 2], 1] == pytest.approx([0, 0], abs=2)
    lost = pairs._replace(embedding=(torch.full((2, 2), math.nan),) * 2)
    with pytest.raises(UserError, match="not finite: the run diverged"):
        PredictedOperators().compute(replace(subject, extras={"pairs": lambda: lost}))


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
    arrays = Invariance().compute(replace(whole(), beside=(whole(()),)))
    assert arrays["beside"].tolist() == ["run"]
    assert arrays["similarity_beside"][0, 0] == pytest.approx(cosines)
    assert arrays["similarity_beside"].shape == arrays["margin_beside"].shape == (1, 2, 5)


def test_neighbours_in_the_subspace_of_what_tells_them_apart() -> None:
    shape_N, color_N = np.arange(24) % 2, np.arange(24) // 12
    embedding_ND = torch.cat(
        [F.one_hot(torch.tensor(label_N), 2) for label_N in (shape_N, color_N)], dim=1
    ).float()
    images = Images(
        tuple(f"{at // 2}@x{at}y0" for at in range(24)),  # in pairs of one file
        np.zeros((24, 2, 2, 3), np.uint8),
        {"shape": shape_N, "color": color_N},
        {"shape": ("a", "b"), "color": ("c", "d")},
    )
    halves = torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 1]]).T
    subject = Subject("run", operators=("rotate", "invert"), mask_DK=halves, images=images,
                      embed=lambda _: embedding_ND)  # fmt: skip
    arrays = SubspacesAnalysis().compute(subject)
    assert arrays["subspaces"].tolist() == ["rotate", "invert", "whole embedding"]
    assert arrays["agreement"][0, 0] == 100  # by shape, in the half that holds the shape
    assert arrays["agreement"][1, 1] == 100
    assert arrays["expected"] == pytest.approx([100 * 11 / 22, 100 * 10 / 22])
    assert Neighbours().compute(subject)["nearest"][0, -1, 0] != 1  # of its file
    points_AN2 = arrays["points"]
    assert points_AN2.shape == (3, 24, 2)
    # On the map as well: images of one shape are nearer to each other than to the other's.
    apart = np.linalg.norm(points_AN2[0, None] - points_AN2[0, :, None], axis=-1)
    alike = shape_N[:, None] == shape_N
    assert apart[alike].mean() < apart[~alike].mean() / 2
    assert "shape 100 % in rotate" in SubspacesAnalysis().caption(arrays)
    assert np.array_equal(SubspacesAnalysis().compute(subject)["points"], points_AN2)


def test_uncertainty_of_a_model_that_is_unsure_of_turned_and_of_odd_images() -> None:
    arrays = Uncertainty().compute(whole())
    assert arrays["operators"].tolist() == ["rotate", "shear_x"]
    assert arrays["score"] == pytest.approx(np.arange(10) / 10)  # 10 is the last image, turned
    assert arrays["score_changed"][0] == pytest.approx(0.45 + arrays["magnitudes"] / 10)
    assert arrays["score_changed"][1] == pytest.approx(np.full(6, 0.45))
    assert arrays["correlation"] == pytest.approx([1, 0])
    assert arrays["correlation_margin"] == pytest.approx([0, 0])
    assert arrays["class_name"].tolist() == ["even", "odd"]
    assert arrays["class_score"] == pytest.approx([0.4, 0.5])
    assert arrays["class_accuracy"].tolist() == [100, 0]
    # Of 25 pairs of an odd (wrong) and an even image the odd one is larger in 1 + 2 + 3 + 4 + 5.
    assert arrays["error_found"] == pytest.approx([60])
    least, _ = Uncertainty().details(arrays).galleries
    assert least.captions[0] == "9.png: 0.900"
    same = Uncertainty().compute(replace(whole(), extras={"uncertainty": lambda _: torch.ones(10)}))
    assert same["score"].tolist() == [0] * 10
    assert "is the same for every image" in Uncertainty().caption(same)


def test_what_subspaces_keep_of_a_task() -> None:
    arrays = Predictions().compute(whole())
    assert arrays["tasks"].tolist() == ["shape", "color"]
    assert arrays["prediction"].tolist() == [[50, 60, 70]] * 2
    assert arrays["advantage_low"].tolist() == [[-13, -3, 7]] * 2
    assert "of shape most in invert and least in rotate;" in Predictions().caption(arrays)
    grid = Predictions().details(arrays).grid
    assert [row[1] for row in grid.rows[:3]] == ["invert", "shear x", "rotate"]
    assert [row[-1] for row in grid.rows[:3]] == ["more", "average", "less"]


def test_advice_on_what_a_task_loses() -> None:
    arrays = Advice().compute(whole())
    assert arrays["known"].tolist() == [True, False]  # 34 - 5 is below the chance of 33
    assert arrays["change"].tolist() == [[-20, -1, -1]] * 2
    verdicts = [[verdict(arrays, task, at) for at in range(3)] for task in range(2)]
    assert verdicts == [[NEEDS, OPEN, OPEN], [UNKNOWN] * 3]  # -1 - 3 leaves a loss of 2 open
    narrow = arrays | {"change_low": arrays["change"] - 0.5}
    assert verdict(narrow, 0, 1) == AFFORDS
    assert "shape needs what is destroyed by rotate (-20)." in Advice().caption(arrays)
    grid = Advice().details(arrays).grid
    assert [row[1] for row in grid.rows[:3]] == ["shear x", "invert", "rotate"]


@pytest.mark.parametrize(
    ("name", "subject", "message"),
    [
        ("subspaces", Subject("run"), "needs images"),
        ("advice", Subject("run"), "python -m paper advise RUN --data SET"),
        ("subspaces", replace(whole(), images=FEW), "needs 5 images or more, got 3"),
        ("predictions", replace(whole(), extras={}), "mast evaluate RUN --data SET"),
        ("uncertainty", replace(whole(), extras={}), "predicts no uncertainty"),
        ("predicted_operators", replace(whole(), extras={}), "another number of views"),
        ("predicted_operators", whole(), "It needs 24 images or more, got 10."),
        ("invariance", whole(("invert",)), "None of its operators has a magnitude"),
    ],
)
def test_what_a_run_lacks_is_named(name: str, subject: Subject, message: str) -> None:
    assert message in str(FIGURES[name].kind().lacking(subject))
