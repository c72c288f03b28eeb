"""Fine-tuning: its loss by hand, its draws, its resuming; the encoder that was given stays."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_evaluation import working_in
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.core.loop import Training
from mast.core.optim import to_zero
from mast.data import CanvasSet
from mast.measure.frozen import FrozenEncoder
from mast.measure.sets import EvaluationData, tasks
from mast.measure.training_views import TrainingViews
from mast.measure.tuning import Network, Recipe, classification_loss, mixed, tune
from mast.protocols import FineTune, Semi
from mast.protocols.finetune import RECIPES
from mast.protocols.semi import draw_share, listed

QUICK = Recipe(epochs=3, batch_size=16, encoder_lr=0.1, head_lr=1.0)


def test_losses_by_hand() -> None:
    scores = torch.tensor([[2.0, 0.0]])
    half = torch.tensor([[0.75, 0.25]])
    softmax = scores.softmax(dim=1)
    expected = -(0.75 * softmax[0, 0].log() + 0.25 * softmax[0, 1].log())
    assert float(classification_loss(scores, half, "cross_entropy")) == pytest.approx(
        float(expected)
    )
    # Both classes are in the image, so both should be found.
    sigmoid = scores.sigmoid()
    expected = -(sigmoid[0, 0].log() + sigmoid[0, 1].log()) / 2
    assert float(classification_loss(scores, half, "binary")) == pytest.approx(float(expected))


def test_images_are_mixed_with_any_other() -> None:
    partners = set()
    for step in range(40):
        _, target = mixed(torch.rand(6, 3, 8, 8), torch.eye(6), Recipe(mixup=1.0), (0, step))
        partners |= {tuple(row.nonzero().squeeze(1).tolist()) for row in target}
    assert len([pair for pair in partners if len(pair) == 2]) == 15  # all pairs of six


def test_every_step_has_a_rate() -> None:
    for steps in (1, 3):
        rate = to_zero(steps)
        rates = [rate((step + 1) / steps) for step in range(steps)]
        assert all(0 < low < 1 for low in rates)
        assert rates == sorted(rates, reverse=True)
    assert rate(1 / 3) == pytest.approx((1 + np.cos(np.pi / 6)) / 2)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixing_keeps_the_shares(kind: str) -> None:
    images = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 3, 8, 8).contiguous()
    target = torch.eye(4)
    recipe = Recipe(**{kind: 1.0})
    shares = set()
    for step in range(4):
        views, mixed_target = mixed(images, target, recipe, (0, step))
        again, _ = mixed(images, target, recipe, (0, step))
        assert torch.equal(views, again)
        shares.add(round(float(mixed_target.max()), 4))
        torch.testing.assert_close(mixed_target.sum(dim=1), torch.ones(4))
        # An image is as much of each image that went into it as its target says.
        torch.testing.assert_close(views.mean(dim=(1, 2, 3)), mixed_target @ torch.arange(4.0))
    assert len(shares) > 1
    assert mixed(images, target, Recipe(), (0, 0))[0] is images


def test_head_and_encoder_have_rates_of_their_own(encoder: nn.Module) -> None:
    network = Network(encoder, 12, 3, torch.Generator().manual_seed(0))
    groups = network.groups(Recipe(encoder_lr=0.1, head_lr=2.0))
    shapes = {
        (group["name"], group["peak_lr"]): [tuple(p.shape) for p in group["params"]]
        for group in groups
    }
    assert shapes == {
        ("vectors", 0.1): [(12,), (12,)],
        ("weights", 2.0): [(3, 12)],
        ("vectors", 2.0): [(3,)],
    }


def scores(encoder: FrozenEncoder, data: EvaluationData, recipe: Recipe = QUICK) -> Tensor:
    task = tasks(data, 0)[0]
    return tune(encoder, data, task, task.fit_F, recipe, 0, "trial")(data.test)


def test_the_encoder_learns_and_the_one_that_was_given_stays(
    encoder: nn.Module, data: EvaluationData
) -> None:
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    frozen_head = scores(FrozenEncoder(encoder), data, replace(QUICK, encoder_lr=0.0))
    learned = scores(FrozenEncoder(encoder), data)
    assert not torch.equal(frozen_head, learned)
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())


def test_a_killed_training_goes_on_where_it_was(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = scores(FrozenEncoder(encoder), data)
    real, calls = TrainingViews.epoch, 0

    def killed(self: TrainingViews, *where: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return real(self, *where)

    monkeypatch.setattr(TrainingViews, "epoch", killed)
    module = sys.modules["mast.measure.tuning"]
    monkeypatch.setattr(module, "Training", partial(Training, checkpoint_minutes=0.0))
    with pytest.raises(KeyboardInterrupt):
        scores(working_in(tmp_path, encoder), data)
    assert len(list((tmp_path / "unfinished").iterdir())) == 1
    frozen = working_in(tmp_path, encoder)
    assert torch.equal(scores(frozen, data), whole)
    assert calls == 4  # the third epoch alone was trained again
    # The last state stays until the result is written: it costs no training to come back.
    assert torch.equal(scores(working_in(tmp_path, encoder), data), whole)
    assert calls == 4
    frozen.bench.finish()
    assert list((tmp_path / "unfinished").iterdir()) == []


def test_other_images_are_another_training(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    task = tasks(data, 0)[0]
    for positions in (task.fit_F[:20], task.fit_F[20:40]):
        tune(working_in(tmp_path, encoder), data, task, positions, QUICK, 0, "trial")
    assert len(list((tmp_path / "unfinished").iterdir())) == 2


def test_a_part_of_the_operators_is_chosen_and_crop_and_flip_always(data: EvaluationData) -> None:
    recipe = RECIPES["a3"]
    views = TrainingViews(
        data.pool, torch.arange(40), 16, batch_size=40, seed=0, preset=recipe.preset(), compose=2
    )
    chosen = views._chosen(1000, torch.Generator().manual_seed(0))
    assert chosen is not None
    names = views.pipeline.names
    always = [names.index(name) for name in ("random_resized_crop", "horizontal_flip")]
    assert chosen[:, always].all()
    others = [at for at in range(len(names)) if at not in always]
    assert (chosen[:, others].sum(dim=1) == 2).all()
    share = chosen[:, others].float().mean(dim=0)
    assert ((share - 2 / len(others)).abs() < 0.05).all()


def test_shares_are_of_each_class_and_one_holds_the_other() -> None:
    labels = torch.arange(400) % 4
    few, more = draw_share(labels, 0.02, 0), draw_share(labels, 0.1, 0)
    assert labels[few].bincount().tolist() == [2, 2, 2, 2]
    assert labels[more].bincount().tolist() == [10, 10, 10, 10]
    assert set(few.tolist()) < set(more.tolist())
    assert not torch.equal(few, draw_share(labels, 0.02, 1))
    assert len(draw_share(labels, 1e-6, 0)) == 4


def test_lists_of_simclr(tmp_path: Path) -> None:
    names = ["n01/n01_1.JPEG", "n01/n01_2.JPEG", "n02/n02_1.JPEG", "a/x.png", "b/x.png"]
    file = tmp_path / "1percent.txt"
    file.write_text("n02_1.JPEG\nn01_1.JPEG\n")
    assert listed(file, names).tolist() == [0, 2]
    file.write_text("n01/n01_2.JPEG\nn03_1.JPEG\n")
    with pytest.raises(UserError, match="1 of the 2 images listed"):
        listed(file, names)
    file.write_text("x.png\n")
    with pytest.raises(UserError, match="may be any of 2"):
        listed(file, names)
    with pytest.raises(UserError, match="no list"):
        listed(tmp_path / "none.txt", names)


def test_the_drawn_subset_is_written_down_and_can_be_given(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    settings = {"shares": (0.2,), "encoder_lrs": (0.1,), "head_lrs": (1.0,), "epochs": 2}
    one = replace(data, train=replace(data.train, name="sets/tiny"), val=None)
    one = replace(one, train=replace(one.train, targets={"class": one.train.targets["class"]}))
    drawn = dict(Semi(**settings).run(working_in(tmp_path, encoder), one))  # type: ignore[arg-type]
    (file,) = (tmp_path / "subsets").iterdir()
    assert file.name == "sets-tiny-class-20%-seed0-000000.txt"
    assert len(file.read_text().split()) == drawn["class 20%/counts/labelled"] == 12
    given = dict(Semi(**settings, lists=(str(file),)).run(FrozenEncoder(encoder), one))  # type: ignore[arg-type]
    assert given["class 20%/top1"] == drawn["class 20%/top1"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Semi(shares=(0.1,)), "1 shares and 2 encoder_lrs"),
        (lambda: Semi(shares=(0.0, 0.1)), "shares must be above 0, got 0.0"),
        (lambda: Semi(shares=(0.5, 1.1)), r"shares must be in \(0, 1\], got 1.1"),
        (lambda: FineTune(changes={"epochs": 0}), "epochs must be 1 or more, got 0"),
        (lambda: FineTune(changes={"optimizer": "adam"}), "settings of recipe sgd: .*adam"),
        (lambda: FineTune(recipe="a4"), "unknown recipe of finetune 'a4'"),
        (
            lambda: FineTune(changes={"epoch": 1}),
            "unknown setting of recipe sgd .* mean 'epochs'",
        ),
        (lambda: FineTune(changes={"views": "mast6"}), "unknown views of a recipe 'mast6'"),
    ],
)
def test_settings_that_do_not_fit(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_one_image_is_not_enough(encoder: nn.Module, data: EvaluationData) -> None:
    task = tasks(data, 0)[0]
    with pytest.raises(UserError, match="has 1 images"):
        tune(FrozenEncoder(encoder), data, task, task.fit_F[:1], QUICK, 0, "trial")


def test_a3_trains(encoder: nn.Module, make_set: Callable[..., CanvasSet]) -> None:
    data = EvaluationData(make_set(20), None, make_set(8, seed=2), 16)
    changes = {"epochs": 3, "batch_size": 15, "size": 16}
    settings = FineTune(recipe="a3", changes=changes)
    values = dict(settings.run(FrozenEncoder(encoder), data))
    assert np.isfinite(values["class/top1"])
    assert settings.settings()["resolved"]["optimizer"] == "lamb"
    assert settings.settings()["resolved"]["epochs"] == 3


def test_one_image_a_class_is_enough_where_nothing_is_tuned(
    encoder: nn.Module, data: EvaluationData
) -> None:
    labels = data.train.targets["class"]
    one = data.train.subset([int((labels == label).argmax()) for label in range(3)])
    few = replace(data, train=replace(one, targets={"class": one.targets["class"]}), val=None)
    settings = FineTune(changes={"epochs": 2})
    assert "class/top1" in dict(settings.run(FrozenEncoder(encoder), few))
    with pytest.raises(UserError, match="none can be held out"):
        list(FineTune(encoder_lrs=(0.1, 0.2)).run(FrozenEncoder(encoder), few))
