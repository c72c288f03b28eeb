"""Protocols on the linear probe, what each alone shows, and what few labels teach."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_evaluation import complete, tiny_set
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.data.pixels import Pixels
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols import Linear
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder
from mast.evaluation.result import TargetResult
from paper.protocols.embedding import EmbeddingProbe
from paper.protocols.ensemble import Ensemble
from paper.protocols.retained import Retained
from paper.protocols.rotation import Rotation


class Mean(nn.Module):
    """The image's mean color."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return images_BCHW.mean(dim=(2, 3))


def measure(data: EvaluationData, protocol: str, **settings: object) -> TargetResult:
    common = EvaluationSettings(protocols={protocol: settings})
    (result,) = evaluate_encoder(Mean(), data, protocol, common)
    return result.targets["class"]


def test_what_an_encoder_ignores_costs_nothing(data: EvaluationData) -> None:
    names = ("horizontal_flip", "invert", "gaussian_blur")
    values = measure(data, "robust", operators=names, magnitudes=[0.5, 1.0]).values
    assert values["horizontal_flip"] == pytest.approx(values["top1"], abs=1e-3)
    assert values["gaussian_blur"] == pytest.approx(values["top1"], abs=5)
    assert values["invert"] < values["top1"] - 30  # colors become those of other classes
    assert "invert@1" not in values  # it has no magnitude
    mean = (values["gaussian_blur@0.5"] + values["gaussian_blur@1"]) / 2
    assert values["gaussian_blur"] == pytest.approx(mean)
    assert values["changed"] == pytest.approx(sum(values[name] for name in names) / 3)


def test_a_task_of_colors_needs_them(data: EvaluationData) -> None:
    found = measure(data, "retained", operators=("horizontal_flip", "grayscale"))
    values = found.values
    assert values["top1"] > 90
    assert values["change_horizontal_flip"] == pytest.approx(0, abs=1e-3)
    assert values["change_grayscale"] < -15
    assert values["change_grayscale_high"] < 0
    methods = [found.intervals[f"{kind}_grayscale"] for kind in ("with", "change")]
    assert methods == ["Wilson", "Tango"]
    for name in ("horizontal_flip", "grayscale"):
        changed = values["top1"] + values[f"change_{name}"]
        assert values[f"with_{name}"] == pytest.approx(changed)
    labels_M = torch.as_tensor(data.test.targets["class"])
    assert values["chance"] == pytest.approx(100 * float(labels_M.bincount().max()) / len(labels_M))


def test_half_of_the_images_are_changed_the_same_ones_each_time(data: EvaluationData) -> None:
    encoder = FrozenEncoder(Mean())
    retained = Retained(operators=("invert",))
    plain_MD = encoder.features(data.test, data.size)
    changed_MD = retained._changed("invert", encoder, data)[1]
    acts_M = ~torch.isclose(plain_MD, changed_MD, atol=1e-4).all(dim=1)
    assert 0.2 < float(acts_M.float().mean()) < 0.8
    assert changed_MD[acts_M] == pytest.approx(1 - plain_MD[acts_M], abs=1e-2)
    assert torch.equal(changed_MD, retained._changed("invert", encoder, data)[1])


def test_the_ensemble_knows_what_its_parts_know(encoder: nn.Module, data: EvaluationData) -> None:
    whole = complete(encoder)
    ensemble = dict(Ensemble(resamples=50).run(whole, data))
    alone = dict(Linear(resamples=50).run(whole, data))
    # The two masked halves side by side are the same numbers, each once.
    assert ensemble["class/top1"] == pytest.approx(alone["class/top1"], abs=1e-6)


class Halves(nn.Module):
    """An embedding that shows the class in its first half alone."""

    operators = ("first", "second")

    def forward(self, images_BCHW: Tensor) -> Tensor:
        mean_BC = images_BCHW.mean(dim=(2, 3))
        return torch.cat([mean_BC, torch.zeros_like(mean_BC)], dim=1)

    def masks(self) -> Tensor:
        return torch.eye(2).repeat_interleave(3, dim=0) * 5.0


def test_the_subspace_that_a_task_needs_predicts_its_classes(
    encoder: nn.Module, data: EvaluationData
) -> None:
    whole = FrozenEncoder(encoder, representations=lambda _: FrozenEncoder(Halves()))
    values = dict(EmbeddingProbe().run(whole, data))
    assert values["class/top1"] > 90
    assert values["class/prediction_first"] > 60
    # Without its half the probe sees the mean embedding at most: about chance for three classes.
    assert values["class/prediction_second"] < 50
    # Another run is right about other images: there is nothing to pair.
    assert "class/each/prediction_first" not in values


def skies(count: int, seed: int) -> CanvasSet:
    """Bright above, dark below, with noise; no labels."""
    draw = np.random.default_rng(seed)
    images = np.linspace(220, 30, 16)[:, None, None] + 20 * draw.standard_normal((count, 16, 16, 3))
    return CanvasSet(
        name=f"skies@{seed}",
        pixels=Pixels.of(images.clip(0, 255).astype(np.uint8)),
        aspect_N=np.ones(count, np.float32),
        targets={},
        classes={},
        identifiers=tuple(map(str, range(count))),
        fingerprint=str(seed),
    )


class HalvesRotation(nn.Module):
    """Mean brightness above, below, left and right, or of the whole image alone."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, images_BCHW: Tensor) -> Tensor:
        gray_BHW = images_BCHW.mean(dim=1)
        if self.whole:
            return gray_BHW.mean(dim=(1, 2))[:, None]
        rows_BH, columns_BW = gray_BHW.mean(dim=2), gray_BHW.mean(dim=1)
        halves = (rows_BH[:, :8], rows_BH[:, 8:], columns_BW[:, :8], columns_BW[:, 8:])
        return torch.stack([half.mean(dim=1) for half in halves], dim=1)


@pytest.fixture
def unlabelled() -> EvaluationData:
    return EvaluationData(skies(40, 0), skies(12, 1), skies(16, 2), 16)


def test_orientation_is_seen_where_it_can_be(unlabelled: EvaluationData) -> None:
    for whole, low, high in ((False, 99.0, 100.0), (True, 5.0, 45.0)):
        (result,) = evaluate_encoder(HalvesRotation(whole), unlabelled, "rotation")
        assert low <= result.targets["rotation"].values["top1"] <= high
    one = replace(unlabelled, train=unlabelled.train.subset([0]), val=None)
    with pytest.raises(UserError, match="one file of images to learn from leaves none to choose"):
        evaluate_encoder(HalvesRotation(True), one, "rotation")


def test_copies_of_an_image_are_never_split(unlabelled: EvaluationData) -> None:
    task = Rotation()._task(replace(unlabelled, val=None))
    assert len(task.fit_F) + len(task.choose_V) == 4 * 40
    assert not set((task.fit_F % 40).tolist()) & set((task.choose_V % 40).tolist())
    for positions in (task.fit_F, task.choose_V):
        assert torch.equal(
            task.pool_labels_N[positions].bincount(), torch.full((4,), len(positions) // 4)
        )


FEW = {
    "repeats": 3, "episodes": 20, "queries": 4, "shots": [5],
    "penalties": [1, 0.1, 0.01, 1e-3],
}  # fmt: skip


def few_labels(encoder: nn.Module, data: EvaluationData, **changes: object) -> dict[str, float]:
    settings = EvaluationSettings(protocols={"fewshot": {**FEW, **changes}})
    (result,) = evaluate_encoder(encoder, data, ["fewshot"], settings)
    return result.targets["class"].values


class Blind(nn.Module):
    """Features that have nothing to do with the image."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(len(images_BCHW))
        return torch.randn(len(images_BCHW), 6, generator=generator)


def only_colors(canvases: CanvasSet) -> CanvasSet:
    """A set without its other targets."""
    return replace(canvases, targets={"class": canvases.targets["class"]})


def test_colors_are_learned_from_few_and_noise_is_not(
    encoder: nn.Module, data: EvaluationData
) -> None:
    data = replace(data, train=only_colors(data.train))
    sighted, blind = few_labels(encoder, data), few_labels(Blind(), data)
    for name, least in (("5_a_class", 60), ("3_way_5_shot", 60), ("3_way_1_shot", 40)):
        assert sighted[f"{name}_low"] <= sighted[name] <= sighted[f"{name}_high"]
        assert sighted[name] > least
        assert blind[name] == pytest.approx(100 / 3, abs=15)
    assert sighted["3_way_5_shot"] >= sighted["3_way_1_shot"] - 5


class Blue(nn.Module):
    """By how much blue is above red, in which these images differ by class alone."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        mean_BC = images_BCHW.mean(dim=(2, 3))
        return mean_BC[:, 2:] - mean_BC[:, :1]


def test_episodes_that_are_all_alike_have_no_interval() -> None:
    train, test = (only_colors(tiny_set(count, classes=2, noise=0)) for count in (6, 2))
    data = EvaluationData(train, None, replace(test, fingerprint="test"), 16)
    values = few_labels(Blue(), data, support=[1], queries=1, shots=[2], episodes=5)
    assert values["2_way_1_shot"] == 100
    assert "2_way_1_shot_low" not in values
    assert values["2_a_class"] == 100


def test_episodes_are_scored_on_other_files(encoder: nn.Module, data: EvaluationData) -> None:
    """A class with two files has one to learn from and one to be scored on."""
    data = replace(data, train=only_colors(data.train))
    labels_M = data.test.targets["class"]
    tiles = tuple(f"{label}-{at % 2}.png@x{at}y0" for at, label in enumerate(labels_M))
    data = replace(data, test=replace(data.test, identifiers=tiles))
    assert few_labels(encoder, data, support=[1])["3_way_1_shot"] > 40
    with pytest.raises(
        UserError, match=r"more than 2 files of test images\. Set a smaller `support`"
    ):
        few_labels(encoder, data, support=[2])
