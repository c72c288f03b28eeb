"""Fine-tuning: its loss by hand, its views and draws, few labels, resuming."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny import stacked
from tiny_evaluation import tiny_set, working_in
from torch import Tensor, nn

from mast.augment import PRESETS, Pipeline, Preset, View
from mast.core.errors import UserError
from mast.core.seeds import stream
from mast.core.stopping import Interrupted
from mast.data import CanvasSet
from mast.data.pixels import Pixels
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData, tasks
from mast.evaluation.protocols import FineTune
from mast.evaluation.protocols.finetune import RECIPES
from mast.evaluation.training_views import LabelledBatch, TrainingViews
from mast.evaluation.tuning import Recipe, classification_loss, mix, tune
from mast.models import Encoder, EncoderConfig
from paper.protocols.semi import Semi, draw_share, positions_listed

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


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixing_keeps_the_shares(kind: str) -> None:
    images = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 3, 8, 8).contiguous()
    target = torch.eye(4)
    recipe = Recipe(**{kind: 1.0})
    shares = set()
    for step in range(4):
        views, mixed_target = mix(images, target, recipe, (0, step))
        again, _ = mix(images, target, recipe, (0, step))
        assert torch.equal(views, again)
        shares.add(round(float(mixed_target.max()), 4))
        torch.testing.assert_close(mixed_target.sum(dim=1), torch.ones(4))
        # An image is as much of each image that went into it as its target says.
        torch.testing.assert_close(views.mean(dim=(1, 2, 3)), mixed_target @ torch.arange(4.0))
    assert len(shares) > 1
    assert mix(images, target, Recipe(), (0, 0))[0] is images


def scores(encoder: FrozenEncoder, data: EvaluationData, recipe: Recipe = QUICK) -> Tensor:
    task = tasks(data, 0)[0]
    return tune(encoder, data, task, task.fit_F, recipe, 0, "trial").scores(data.test)


def test_a_training_that_is_asked_to_stop_goes_on_where_it_was(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = scores(FrozenEncoder(encoder), data)
    real, calls = TrainingViews.epoch, 0

    def asked(self: TrainingViews, *where: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self, *where)

    monkeypatch.setattr(TrainingViews, "epoch", asked)
    with pytest.raises(Interrupted, match="stopped after step 4 of 9, which was saved") as stopped:
        scores(working_in(tmp_path, encoder), data)
    assert stopped.value.code == 143
    frozen = working_in(tmp_path, encoder)
    assert torch.equal(scores(frozen, data), whole)
    # The last state stays until the result is written: it costs no training to come back.
    done = calls
    assert torch.equal(scores(working_in(tmp_path, encoder), data), whole)
    assert calls == done
    frozen.bench.finish()
    assert list((tmp_path / "unfinished").iterdir()) == []


def test_a_part_of_the_operators_is_chosen_and_crop_and_flip_always(data: EvaluationData) -> None:
    recipe = RECIPES["a3"]
    views = TrainingViews(
        data.pool, torch.arange(40), 16, batch_size=40, seed=0, preset=recipe.preset(), compose=2
    )
    chosen = views._chosen(1000, torch.Generator().manual_seed(0))
    names = views.pipeline.names
    always = [names.index(name) for name in ("random_resized_crop", "horizontal_flip")]
    assert chosen[:, always].all()
    others = [at for at in range(len(names)) if at not in always]
    assert (chosen[:, others].sum(dim=1) == 2).all()
    share = chosen[:, others].float().mean(dim=0)
    assert ((share - 2 / len(others)).abs() < 0.05).all()


def test_what_cannot_be_tuned_is_one_line(encoder: nn.Module, data: EvaluationData) -> None:
    task = tasks(data, 0)[0]
    with pytest.raises(UserError, match="has 1 images"):
        tune(FrozenEncoder(encoder), data, task, task.fit_F[:1], QUICK, 0, "trial")
    vit = FrozenEncoder(
        Encoder(EncoderConfig("timm:test_vit", {"dynamic_img_size": False}), data.size)
    )
    with pytest.raises(UserError, match="'timm:test_vit' cannot take images of 48 pixels"):
        tune(vit, data, task, task.fit_F, replace(QUICK, size=48), 0, "trial")


def test_a3_trains(encoder: nn.Module) -> None:
    data = EvaluationData(tiny_set(20), None, tiny_set(8, seed=2), 16)
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
    with pytest.raises(UserError, match="one of them to hold out, got none"):
        list(FineTune(encoder_lrs=(0.1, 0.2)).run(FrozenEncoder(encoder), few))


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
    assert positions_listed(file, names).tolist() == [0, 2]
    for text, refused in (
        ("n01/n01_2.JPEG\nn03_1.JPEG\n", "1 of the 2 images listed"),
        ("x.png\n", "may be any of 2"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=refused):
            positions_listed(file, names)
    with pytest.raises(UserError, match="no list"):
        positions_listed(tmp_path / "none.txt", names)


def test_the_drawn_subset_is_written_and_can_be_read_again(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    settings = {"shares": (0.2,), "encoder_lrs": (0.1,), "head_lrs": (1.0,), "epochs": 2}
    one = replace(data, train=replace(data.train, name="sets/tiny"), val=None)
    one = replace(one, train=replace(one.train, targets={"class": one.train.targets["class"]}))
    drawn = dict(Semi(**settings).run(working_in(tmp_path, encoder), one))  # type: ignore[arg-type]
    (file,) = (tmp_path / "subsets").iterdir()
    assert file.name == "sets-tiny-class-20%-seed0-000000.txt"
    assert len(file.read_text().split()) == drawn["class 20%/counts/labelled"] == 12
    listed = dict(Semi(**settings, lists=(str(file),)).run(FrozenEncoder(encoder), one))  # type: ignore[arg-type]
    assert listed["class 20%/top1"] == drawn["class 20%/top1"]


SIZE = 24


def fabric(rank: int = 0, processes: int = 1) -> Any:
    return SimpleNamespace(
        device=torch.device("cpu"),
        global_rank=rank,
        world_size=processes,
        to_device=lambda tensor: tensor,
    )


@pytest.fixture(scope="module")
def pool() -> tuple[CanvasSet, CanvasSet]:
    """Two sets, the second with canvases of twice the side."""
    small, large = tiny_set(7, seed=0), tiny_set(6, seed=1)
    doubled = stacked(large).repeat(2, axis=1).repeat(2, axis=2)
    return small, replace(large, pixels=Pixels.of(doubled))


def batches(pool: tuple[CanvasSet, ...], where: Any, **settings: Any) -> list[LabelledBatch]:
    positions = torch.arange(0, sum(map(len, pool)), 2)
    views = TrainingViews(pool, positions, SIZE, batch_size=8, seed=5, **settings)
    return list(views.epoch(where, 1, 0))


def test_a_batch_is_the_first_view_of_its_place(pool: tuple[CanvasSet, ...]) -> None:
    crop = {"random_resized_crop": {"scale": (0.1, 0.2)}}
    operators = PRESETS["mast5"].operators
    drawn = batches(pool, fabric(), preset=Preset(operators, (View(crop, 16), View(size=8))))
    pipeline = Pipeline(Preset(operators, (View(crop),)), SIZE)
    assert sorted(torch.cat([batch.positions_B for batch in drawn]).tolist()) == [*range(0, 39, 2)]
    for rounded, exact in zip(
        batches(pool, fabric(), dtype=torch.bfloat16), batches(pool, fabric()), strict=True
    ):
        assert torch.equal(rounded.images_BCHW, exact.images_BCHW.bfloat16())
    for step, batch in enumerate(drawn):
        assert batch.total == len(batch.positions_B)
        assert batch.images_BCHW.shape == (batch.total, 3, SIZE, SIZE)
        (record,) = pipeline.draw(batch.total, stream(5, 1, step))
        for at, position in enumerate(batch.positions_B.tolist()):
            from_set, inside = (pool[0], position) if position < 21 else (pool[1], position - 21)
            canvas = from_set.batch(np.array([inside]))
            (expected,) = pipeline.views(canvas, (record[at : at + 1],)).images
            assert torch.equal(batch.images_BCHW[at], expected[0])


@pytest.mark.parametrize("compose", [None, 2])
def test_processes_share_a_batch(pool: tuple[CanvasSet, ...], compose: int | None) -> None:
    settings = {"preset": PRESETS["mast15"], "compose": compose}
    whole = batches(pool, fabric(), **settings)
    parts = [batches(pool, fabric(rank, 3), **settings) for rank in range(3)]
    for step, batch in enumerate(whole):
        shares = [part[step] for part in parts]
        assert [share.total for share in shares] == [batch.total] * 3
        positions = torch.cat([share.positions_B for share in shares])
        assert torch.equal(positions, batch.positions_B)
        pixels = torch.cat([share.images_BCHW for share in shares])
        assert torch.equal(pixels, batch.images_BCHW)
