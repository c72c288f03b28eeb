"""Every analysis on cases whose answer is known by hand; what a run lacks is said."""

import colorsys
import io
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from matplotlib.colors import to_hex, to_rgb
from PIL import Image
from torch import Tensor

from mast.analyses import ANALYSES, ChangeBy, Images, Pairs, Score, Subject
from mast.analyses.advice import AFFORDS, NEEDS, OPEN, UNKNOWN, UNMEASURED, Advice, verdict
from mast.analyses.curves import Curves
from mast.analyses.figure import GRAY, IN_A_NOTEBOOK, WIDTH, class_colors, palette, save
from mast.analyses.invariance import MAGNITUDES, Invariance
from mast.analyses.masks import MasksAnalysis
from mast.analyses.neighbours import Neighbours
from mast.analyses.predicted_operators import PredictedOperators
from mast.analyses.predictions import Predictions
from mast.analyses.subspaces import SubspacesAnalysis
from mast.analyses.uncertainty import Uncertainty
from mast.core.errors import UserError
from mast.data.generated import CLASSES

NAMES = ("rotate", "shear_x", "invert")


def whole(operators: tuple[str, ...] = NAMES, masks: Tensor | None = None) -> Subject:
    """A run that has everything, of ten images of two classes, of which it knows the first.

    Its embedding is turned by as many radians as the magnitude of `rotate`, and its uncertainty,
    0 to 9, grows by that magnitude.
    """

    def strength(change: ChangeBy | None) -> float:
        return 0.0 if change is None or change[0] != "rotate" else float(change[1] or 0)

    def embed(change: ChangeBy | None) -> Tensor:
        one = torch.tensor([[math.cos(strength(change)), math.sin(strength(change))]])
        return torch.cat([(1 + at) * one for at in range(10)])

    labels_N = np.arange(10) % 2
    images = Images(
        names=tuple(f"{at}.png" for at in range(10)),
        thumbnails_NPP3=np.zeros((10, 4, 4, 3), np.uint8),
        labels={"class": labels_N},
        classes={"class": ("even", "odd")},
        hits={"class": 1.0 - labels_N},
    )
    log = [
        {"step": 1, "epoch": 0.5, "loss": 4.0, "lr": 0.1, "stat/mask_active_share": 0.9},
        {"step": 2, "epoch": 1.0, "loss": math.nan, "lr": 0.1},
        {"step": 2, "epoch": 1, "online/knn": 30.0, "online/effective_rank": 12.0},
        {"step": 3, "warning": "variance collapse: …"},
        {"step": 4, "epoch": 2.0, "loss": 2.0, "lr": 0.0},
    ]
    return Subject(
        "run",
        trained_with=operators,
        operators=operators,
        mask_DK=torch.ones(2, len(operators)) if masks is None else masks,
        epochs=2,
        stages=(("operators begin to compose", 1.0),),
        log=log,
        images=images,
        embed=embed,
        pairs=lambda: drawn_pairs(10, operators),
        uncertainty=lambda change: torch.arange(10.0) + strength(change),
        scores=tuple(scores(operators)),
    )


def many(subject: Subject) -> Subject:
    """With enough images for a regression."""
    images = replace(subject.images, names=tuple(f"{at}.png" for at in range(70)))
    pairs = drawn_pairs(70, subject.operators)
    return replace(subject, images=images, pairs=lambda: pairs)


def drawn_pairs(images: int, operators: tuple[str, ...]) -> Pairs:
    """Two pairs per image: the first dimension shows by how much it was turned, the other nothing.

    Its first view is at 0 there. What the second operator did does not show for half of the images;
    the last one did nothing.
    """
    draw = torch.Generator().manual_seed(0)
    image_P = np.tile(np.arange(images), 2)
    drawn_P, noise_P = torch.randn(2, len(image_P), generator=draw)
    second_PD = torch.stack([drawn_P, noise_P], dim=1)
    differences = [drawn_P.double().numpy()[:, None]] * len(operators)
    if len(operators) > 1:
        unknown = np.where(image_P % 4 < 2, np.nan, 1.0)[:, None]
        differences[1:] = [unknown * differences[0], 0 * differences[0]][: len(operators) - 1]
    return Pairs(
        image_P,
        (torch.zeros(len(image_P), 1), noise_P[:, None]),
        (torch.zeros_like(second_PD), second_PD),
        dict(zip(operators, differences, strict=True)),
    )


def scores(operators: tuple[str, ...]) -> Iterator[Score]:
    """Of two tasks: one that needs the first operator's subject, and one that is not known."""
    for target, top1 in (("shape", 80.0), ("color", 34.0)):
        for protocol in ("embedding", "retained"):
            yield Score(protocol, "set", target, "top1", top1, top1 - 5, top1 + 5)
        yield Score("retained", "set", target, "chance", 33.0)
        for at, name in enumerate(operators):
            change = -1.0 if at else -20.0
            for protocol, measure, value in (
                ("embedding", f"prediction_{name}", 50.0 + 10 * at),
                ("embedding", f"advantage_{name}", 10.0 * (at - 1)),
                ("retained", f"change_{name}", change),
            ):
                yield Score(protocol, "set", target, measure, value, value - 3, value + 3)


@pytest.mark.parametrize("name", ANALYSES)
@pytest.mark.parametrize("count", [1, 3])  # operators
def test_conformance(name: str, count: int, tmp_path: Path) -> None:
    analysis = ANALYSES[name].kind()
    exempt = torch.tensor([[1.0], [0.0]]).expand(-1, count)
    subject = whole(NAMES[:count], masks=exempt if name == "neighbours" else None)
    subject = many(subject) if name == "predicted_operators" else subject
    assert analysis.lacking(subject) is None
    arrays = analysis.compute(subject)
    assert analysis.caption(arrays).endswith(".")
    for key in arrays:
        assert arrays[key].dtype != object
    # What is kept on disk draws the same figure.
    np.savez(tmp_path / "arrays.npz", **arrays)  # type: ignore[arg-type]
    with np.load(tmp_path / "arrays.npz") as kept:
        figure = analysis.draw(dict(kept))
        details = analysis.details(dict(kept))
    if details.grid is not None:
        assert {len(row) for row in details.grid.rows} == {len(details.grid.columns)}
    assert figure.axes


def test_masks_that_are_the_same_that_share_nothing_and_that_are_zero() -> None:
    same = MasksAnalysis().compute(whole())
    assert same["correlation"] == pytest.approx(np.ones((3, 3)))
    assert same["own_share"] == pytest.approx(np.full(3, 1 / 3))
    assert "one subspace serves every operator" in MasksAnalysis().caption(same)
    apart = MasksAnalysis().compute(whole(masks=torch.eye(3)))
    assert apart["correlation"] == pytest.approx(np.eye(3))
    assert apart["own_share"] == pytest.approx(np.ones(3))
    assert "every operator has its own subspace" in MasksAnalysis().caption(apart)
    one = MasksAnalysis().compute(whole(masks=torch.eye(3) * torch.tensor([1.0, 1.0, 0.0])))
    assert MasksAnalysis().caption(one).startswith("The mask of invert is all zero")
    grid = MasksAnalysis().details(one).grid
    assert grid.rows[0][1:] == (100, 0, pytest.approx(100 / 3), 0)
    assert grid.rows[2][3] == 0
    MasksAnalysis().draw(MasksAnalysis().compute(whole(masks=torch.zeros(2, 3))))


def test_masks_of_which_two_are_alike_and_masks_that_are_blocks() -> None:
    masks = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    arrays = MasksAnalysis().compute(whole(masks=masks))
    assert arrays["correlation"][0, 1] == pytest.approx(1)
    assert arrays["correlation"][0, 2] == pytest.approx(0.5)
    assert abs(list(arrays["order"]).index(0) - list(arrays["order"]).index(1)) == 1
    # Half of the third mask is on a dimension that all share equally, half is its own.
    assert arrays["own_share"][2] == pytest.approx(0.5 + 0.5 / 3)
    text = MasksAnalysis().caption(arrays)
    assert "Shear x and rotate have the most similar masks (cosine 1.00)" in text
    assert "invert differs most from the others (mean 0.50)" in text
    # Dimensions are ordered by who holds most of them.
    assert arrays["dimensions"].tolist() == [0, 2, 1]
    masks = torch.ones(4, 3)
    masks[0, 0] = masks[0, 2] = 0
    text = MasksAnalysis().caption(MasksAnalysis().compute(whole(masks=masks)))
    assert text.startswith("25% of the dimensions are exempt from rotate and invert; all are inv")
    masks[1, 1] = 0.5  # a soft mask is no block
    assert "exempt" not in MasksAnalysis().caption(MasksAnalysis().compute(whole(masks=masks)))


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


def test_what_a_block_shows_is_predicted_from_it_alone() -> None:
    exempt = torch.tensor([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])  # the first dimension from the first
    subject = replace(whole(masks=exempt), pairs=lambda: drawn_pairs(400, NAMES))
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


def test_tiles_of_a_file_are_in_one_half() -> None:
    """A view shows of which file it is, which tells nothing of other files."""
    file_P = np.arange(80) // 2
    of_file_PD, drawn_F1 = torch.eye(40)[file_P], np.random.default_rng(0).normal(size=(40, 1))
    both = torch.zeros(80, 40), of_file_PD
    pairs = Pairs(np.arange(80), both, both, {"rotate": drawn_F1[file_P]})
    subject = replace(whole(), mask_DK=None, pairs=lambda: pairs)
    tiles = [f"{at}.tif@x{x}y0" for at in range(40) for x in (0, 8)]
    for names, low, high in ((tiles, -np.inf, 1), (range(80), 10, 101)):
        images = replace(subject.images, names=tuple(map(str, names)))
        explained = PredictedOperators().compute(replace(subject, images=images))["explained"]
        assert low < explained.min() <= explained.max() < high


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
    arrays = PredictedOperators().compute(replace(subject, pairs=lambda: pairs))
    assert arrays["explained"][0, 1] == pytest.approx(100, abs=0.5)
    assert arrays["explained"][1, 0] == pytest.approx(50, abs=4)
    assert arrays["margin"][1, 0] == pytest.approx(100 * 1.96 * 0.5**0.5 / 2000**0.5, abs=1.2)
    assert arrays["explained"][[1, 2], 1] == pytest.approx([0, 0], abs=2)
    lost = pairs._replace(embedding=(torch.full((2, 2), math.nan),) * 2)
    with pytest.raises(UserError, match="not finite: the run diverged"):
        PredictedOperators().compute(replace(subject, pairs=lambda: lost))


def test_the_same_arrays_give_the_same_figure(tmp_path: Path) -> None:
    """Its texts are those of the classes, whatever matplotlib would read in them."""
    subject = whole()
    images = replace(subject.images, classes={"class": ("_a", "cash$ and $x^{")})
    arrays = SubspacesAnalysis().compute(replace(subject, images=images))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        save(SubspacesAnalysis().draw(arrays), tmp_path / name / "figure.npz")
    one, two = ((tmp_path / name / "figure.svg").read_text() for name in ("one", "two"))
    assert one == two
    assert "_a</text>" in one
    assert "cash$ and $x^{</text>" in one
    assert (tmp_path / "one" / "figure.png").stat().st_size > 0
    ids = [of.get("id") for of in ElementTree.fromstring(one).iter() if of.get("id")]
    assert all(str(name).startswith("figure-") for name in ids)


def test_a_notebook_shows_a_figure() -> None:
    """As an image, by what IPython asks for, without pyplot."""
    png = MasksAnalysis().draw(MasksAnalysis().compute(whole()))._repr_png_()  # type: ignore[attr-defined]
    with Image.open(io.BytesIO(png)) as image:
        assert image.format == "PNG"
        assert image.width == WIDTH * IN_A_NOTEBOOK
        assert image.convert("L").getextrema()[0] < 100  # something is drawn on the white


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


def test_the_own_subspace_leads_where_it_does_beyond_chance() -> None:
    """Images turn by different angles; the first mask sees less of it than the second."""
    angle_N = torch.linspace(0.2, 1.0, 8)

    def embed(change: ChangeBy | None) -> Tensor:
        turn_N = angle_N * (0.0 if change is None else float(change[1] or 0))
        return torch.stack([turn_N.cos(), turn_N.sin() / 2, turn_N.sin()], dim=1)

    masks = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    subject = replace(whole(NAMES[:2], masks), embed=embed)
    arrays = Invariance().compute(subject)
    own_N = 1 / (1 + angle_N.tan() ** 2 / 4).sqrt()
    lead_N = (own_N - angle_N.cos()).double()
    lead = float(lead_N.mean())
    assert arrays["lead"] == pytest.approx([lead, -lead], abs=1e-6)
    # Student's t of seven degrees of freedom.
    margin = 2.364624 * float(lead_N.std()) / 8**0.5
    assert arrays["lead_margin"] == pytest.approx([margin] * 2, abs=1e-5)
    assert "most invariant for 1 of the 2 operators" in Invariance().caption(arrays)
    one = Invariance().compute(replace(subject, embed=lambda change: embed(change)[:1]))
    assert np.isnan(one["lead_margin"]).all()  # of one image nothing is beyond chance
    assert "most invariant for 0 of the 2 operators" in Invariance().caption(one)
    Invariance().draw(one)
    shared = Invariance().compute(replace(subject, mask_DK=masks[:, :1].repeat(1, 2)))
    assert np.isnan(shared["lead"]).all()  # no other subspace
    assert "most invariant" not in Invariance().caption(shared)


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


def test_classes_that_are_named_like_colors_are_drawn_in_them() -> None:
    for names in (("red", "apple"), ("gray", "grey")):
        assert class_colors(names) == (palette(2), None)
    fills, outline = class_colors(CLASSES["color"])
    hues = [colorsys.rgb_to_hsv(*to_rgb(fill))[0] for fill in fills]
    for at, hue in enumerate(hues):  # eighths of a turn, as the images are drawn
        assert abs((hue - at / 8 + 0.5) % 1 - 0.5) < 1 / 16 + 0.01
    assert outline == GRAY
    white_and_black = class_colors(("White", "BLACK")).fills  # neither takes those of the page
    assert white_and_black == ("#fefefe", "#010101")
    subject = whole()
    images = replace(subject.images, classes={"class": ("blue", "red")})
    arrays = SubspacesAnalysis().compute(replace(subject, images=images))
    points = SubspacesAnalysis().draw(arrays).axes[0].collections
    assert [to_hex(each.get_facecolor()[0]) for each in points] == ["#0343df", "#e50000"]
    assert [to_hex(edge) for edge in points[0].get_edgecolor()] == [GRAY.lower()]


def few(count: int, labels: bool = True) -> Subject:
    """The same run, looked at with a few images."""
    subject = whole()
    images, embed, uncertainty = subject.images, subject.embed, subject.uncertainty
    fewer = replace(
        images,
        names=images.names[:count],
        thumbnails_NPP3=images.thumbnails_NPP3[:count],
        labels={"class": images.labels["class"][:count]} if labels else {},
        hits={},
    )
    return replace(
        subject,
        images=fewer,
        embed=lambda change: embed(change)[:count],
        uncertainty=lambda change: uncertainty(change)[:count],
    )


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


def test_images_without_labels_are_mapped_and_ranked() -> None:
    subject = few(6, labels=False)
    arrays = SubspacesAnalysis().compute(subject)
    assert "Without labels" in SubspacesAnalysis().caption(arrays)
    assert SubspacesAnalysis().details(arrays).grid is None
    SubspacesAnalysis().draw(arrays)
    ranked = Uncertainty().compute(subject)
    assert ranked["tasks"].size == ranked["class_name"].size == 0
    Uncertainty().draw(ranked)
    assert "rises with the magnitude of 1 of 2" in Uncertainty().caption(ranked)


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
    same = Uncertainty().compute(replace(whole(), uncertainty=lambda _: torch.ones(10)))
    assert same["score"].tolist() == [0] * 10
    assert "is the same for every image" in Uncertainty().caption(same)


def test_rank_correlation_over_classes() -> None:
    labels_N = np.arange(9) // 3
    images = Images(
        tuple("abcdefghi"), np.zeros((9, 2, 2, 3), np.uint8), {"class": labels_N},
        {"class": ("x", "y", "z")}, {"class": np.array([1, 1, 1, 1, 1, 0, 1, 0, 0])},
    )  # fmt: skip
    subject = Subject("run", images=images, uncertainty=lambda _: torch.arange(9.0))
    arrays = Uncertainty().compute(subject)
    assert arrays["class_accuracy"] == pytest.approx([100, 200 / 3, 100 / 3])
    assert arrays["class_correlation"] == pytest.approx([-1])


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
    assert "shape needs what rotate (-20) destroys." in Advice().caption(arrays)
    grid = Advice().details(arrays).grid
    assert [row[1] for row in grid.rows[:3]] == ["shear x", "invert", "rotate"]


def test_sets_that_were_measured_with_other_operators() -> None:
    more = tuple(replace(score, set_name="other") for score in scores(("rotate", "cutout")))
    arrays = Advice().compute(replace(whole(), scores=(*scores(NAMES), *more)))
    assert arrays["operators"].tolist() == [*NAMES, "cutout"]
    assert np.isnan(arrays["change"][2]).tolist() == [False, True, True, False]
    assert verdict(arrays, 2, 1) == UNMEASURED
    grid = Advice().details(arrays).grid
    # First what was not measured, then from what costs least to what costs most.
    assert [row[1] for row in grid.rows[-4:]] == ["shear x", "invert", "cutout", "rotate"]
    Advice().draw(arrays)


@pytest.mark.parametrize(
    ("name", "subject", "message"),
    [
        ("subspaces", Subject("run"), "needs images"),
        ("subspaces", few(3), "needs 5 images or more, got 3"),
        ("predictions", replace(whole(), scores=()), "mast advise RUN --data SET"),
        ("advice", Subject("run"), "mast advise RUN --data SET"),
        ("uncertainty", replace(whole(), uncertainty=None), "predicts no uncertainty"),
        ("predicted_operators", replace(whole(), pairs=None), "another number of views"),
        ("predicted_operators", whole(), "It needs 24 images or more, got 10."),
        ("curves", Subject("run"), "Nothing was logged"),
        ("masks", whole(masks=torch.full((2, 3), math.nan)), "not finite: the run diverged"),
        ("invariance", whole(("invert",)), "None of its operators has a magnitude"),
    ],
)
def test_what_a_run_lacks_is_named(name: str, subject: Subject, message: str) -> None:
    assert message in str(ANALYSES[name].kind().lacking(subject))
