"""What a run costs is computed from known work and rates, or measured; epochs fit the hours."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny import configure

import mast
from mast.config import build_method, change
from mast.core.errors import OutOfMemoryError, UserError
from mast.core.run import RunFolder
from mast.data import open_source
from mast.evaluation.verdict import ADAPT_FIRST
from mast.models import Encoder, EncoderConfig
from mast.recipes import RECIPES, recipe
from mast.runs.cost import GPUS, Cost, cost, flops_an_image

Configure = Callable[..., mast.PretrainConfig]
RTX = GPUS["RTX4090"]


def no_training(config: mast.PretrainConfig) -> RunFolder:
    raise AssertionError("nothing is trained for a GPU that is not here")


def computed(name: str, images: int) -> Cost:
    config = change(recipe(name), {"data.spec": f"factors@train:{images}"})
    return cost(config, open_source(f"factors@train:{images}"), 3600.0, RTX, no_training)


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations that are known, as it takes seconds to count them."""
    monkeypatch.setattr("mast.runs.cost.flops_an_image", lambda config: 1e11)


def test_the_work_of_a_transformer() -> None:
    """Against the closed form: a step multiplies twice more in its backward pass."""
    side, patch, depth, dim, count = 64, 16, 2, 192, 8
    options = {"depth": depth, "num_heads": 3, "embed_dim": dim}
    config = change(
        recipe("simsiam_small"),
        {"encoder": {"name": "vit_tiny_patch16_224", "options": options}, "size": side,
         "batch_size": count, "data.spec": "factors"},
    )  # fmt: skip
    patches = (side // patch) ** 2
    tokens = patches + 1
    stem = 2 * patches * 3 * patch**2 * dim
    layer = 2 * tokens * 12 * dim**2 + 2 * 2 * tokens**2 * dim  # and scores, and their sums
    encoder = 2 * (3 * (stem + depth * layer) - stem)  # of two views, without their gradients
    sizes = [each.weight.numel() for each in build_method(config).modules()
             if isinstance(each, torch.nn.Linear)]  # fmt: skip
    heads = 2 * 3 * 2 * (sum(sizes) - depth * 12 * dim**2)
    assert flops_an_image(config) == encoder + heads


def test_the_work_of_heads_that_read_depths_can_be_counted() -> None:
    """The encoder runs on the meta device, where no depth can be compared with another."""
    of_sources = [
        flops_an_image(
            change(recipe("mast_c5_small"), {"size": 32, "objective.predict_from": sources})
        )
        for sources in (("representation",), ("depths", "representation"))
    ]
    assert of_sources[0] == pytest.approx(of_sources[1], rel=0.01)


def test_a_batch_is_parted_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU; a recipe that fits in no parts is a note."""

    def steps(config: mast.PretrainConfig, pretrain: object) -> tuple[float, int]:
        if config.batch_size // config.accumulate > 32 or config.recipe == "simclr_small":
            raise OutOfMemoryError("out of memory")
        return 100.0, 5_000_000_000

    monkeypatch.setattr("mast.runs.cost._steps", steps)
    plan = mast.plan("factors@train:64", device="cpu", recipes=["vicreg5_small", "simclr_small"])
    assert {each.config.recipe for each in plan.costs} == {"vicreg5_small"}
    assert plan.costs[0].config.accumulate == recipe("vicreg5_small").batch_size // 32 > 1
    assert "simclr_small does not fit here: out of memory" in plan.notes


@pytest.mark.parametrize(("images", "epochs"), [(1000, 800), (25_000, 200), (100_000, 50)])
@pytest.mark.usefixtures("light")
def test_epochs_of_a_recipe(images: int, epochs: int) -> None:
    own = computed("mast_c5_small", images)
    assert own.config.epochs == recipe("mast_c5_small").epochs == 100
    assert own.scaled().config.epochs == epochs


@pytest.mark.usefixtures("light")
def test_epochs_that_fit_the_hours() -> None:
    result = computed("mast_c5_small", 50_000).within(2.0)
    assert result.seconds <= 7_200
    assert result.of_epochs(result.config.epochs + 1).seconds > 7_200
    assert computed("mast_c5_small", 100).within(2.0).config.epochs == 800
    with pytest.raises(UserError, match=r"hours must be .* for an epoch of 50,000 images"):
        computed("mast_c5_small", 50_000).within(1.001)


def test_a_plan_is_measured_here(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    small = configure(photos, tmp_path, "vicreg5_small", epochs=100, batch_size=256)
    monkeypatch.setitem(RECIPES, "vicreg5_small", lambda: small)
    plan = mast.plan(photos / "train", device="cpu", recipes="vicreg5_small")
    assert not {"done:", "warning:"} & {*capsys.readouterr().err.split()}  # of the trial run
    assert plan.commands[0] in repr(plan)
    assert [row["epochs"] for row in plan] == [each.config.epochs for each in plan.costs]
    measured, longer = plan.costs
    assert measured.measured
    assert measured.images_per_second > 0
    assert (measured.config.epochs, longer.config.epochs) == (100, 800)
    assert longer.seconds > measured.seconds
    on_cpu = " --device cpu" if torch.cuda.is_available() else ""
    assert plan.commands == (
        f"mast pretrain {photos / 'train'} --recipe vicreg5_small --batch_size 32{on_cpu}",
        f"mast pretrain {photos / 'train'} --recipe vicreg5_small --epochs 800 "
        f"--batch_size 32{on_cpu}",
    )


@pytest.mark.usefixtures("light")
def test_a_plan_from_weights(photos: Path, theirs: RunFolder, tmp_path: Path) -> None:
    """Of a run, and of a file that does not say which architecture they are of."""
    data = photos / "train"
    plan = mast.plan(data, "A100", recipes="mast_c5_small", weights=str(theirs.path))
    assert plan.costs[0].config.encoder.name == "timm:resnet18"
    assert plan.costs[0].config.encoder.stem_stride == 2
    assert plan.commands[0].endswith(f"--weights {theirs.path}")
    assert ADAPT_FIRST not in plan.notes
    tagged, file = "timm:test_convnext.r160_in1k", tmp_path / "weights.pth"
    torch.save(Encoder(EncoderConfig("timm:test_convnext"), 64).model.state_dict(), file)
    plan = mast.plan(data, "A100", encoder=tagged, recipes="mast_c5_small", weights=str(file))
    assert plan.costs[0].config.encoder.name == "timm:test_convnext"
    assert plan.notes[-1] == ADAPT_FIRST
    assert f" --encoder {tagged} --weights {file}" in plan.commands[0]
    with pytest.raises(UserError, match=r"encoder\.name is 'resnet34', and encoder.weights"):
        mast.plan(data, "A100", encoder="resnet34", weights=str(theirs.path))
    with pytest.raises(UserError, match="hours must be positive and finite, got inf"):
        mast.plan(data, "A100", hours=math.inf)
    with pytest.raises(UserError, match="toys@train:1 has 1 image; give two or more"):
        mast.plan("toys@train:1", "A100", hours=1)
