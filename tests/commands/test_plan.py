"""What a run costs is measured; epochs fit the hours."""

import math
from pathlib import Path

import pytest
import torch
from tiny import configure

import mast
from mast.config import change
from mast.core.errors import OutOfMemoryError, UserError
from mast.core.run import RunFolder
from mast.data import open_source
from mast.evaluation.verdict import ADAPT_FIRST
from mast.models import Encoder, EncoderConfig
from mast.recipes import RECIPES, recipe
from mast.runs.cost import Cost, cost


def computed(name: str, images: int) -> Cost:
    config = change(recipe(name), {"data.spec": f"factors@train:{images}"})
    return cost(config, open_source(f"factors@train:{images}"), 3600.0, mast.pretrain)


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """A speed that is known, as it takes seconds to measure it."""
    monkeypatch.setattr("mast.runs.cost._steps", lambda config, pretrain: (500.0, None))


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
    with pytest.raises(UserError, match=r"hours: expected .* for one epoch of 50,000 images"):
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
    plan = mast.plan(data, device="cpu", recipes="mast_c5_small", weights=str(theirs.path))
    assert plan.costs[0].config.encoder.name == "timm:resnet18"
    assert plan.costs[0].config.encoder.stem_stride == 2
    assert plan.commands[0].endswith(f"--weights {theirs.path}")
    assert ADAPT_FIRST not in plan.notes
    tagged, file = "timm:test_convnext.r160_in1k", tmp_path / "weights.pth"
    torch.save(Encoder(EncoderConfig("timm:test_convnext"), 64).model.state_dict(), file)
    plan = mast.plan(data, device="cpu", encoder=tagged, recipes="mast_c5_small", weights=str(file))
    assert plan.costs[0].config.encoder.name == "timm:test_convnext"
    assert plan.notes[-1] == ADAPT_FIRST
    assert f" --encoder {tagged} --weights {file}" in plan.commands[0]
    with pytest.raises(UserError, match=r"encoder\.name: expected .*, got 'resnet34'"):
        mast.plan(data, device="cpu", encoder="resnet34", weights=str(theirs.path))
    with pytest.raises(UserError, match="hours: expected a positive, finite number, got inf"):
        mast.plan(data, device="cpu", hours=math.inf)
    with pytest.raises(UserError, match="data: expected two images or more, got 1 in toys@train:1"):
        mast.plan("toys@train:1", device="cpu", hours=1)
