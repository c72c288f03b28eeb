"""The examples of docs/extending.md run as they stand."""

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import ENCODER, Pooled

import mast
from mast.analyses import ANALYSES, Subject
from mast.augment import OPERATORS, PRESETS
from mast.cli import main
from mast.config import build_method
from mast.core.errors import UserError
from mast.data import open_canvas
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols import EVALUATORS
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder
from mast.methods import METHODS
from mast.recipes import RECIPES

REGISTRIES = (EVALUATORS, ANALYSES, METHODS, OPERATORS, PRESETS, RECIPES)
DOCUMENT = Path(__file__).parent.parent / "docs" / "extending.md"


@pytest.fixture(autouse=True)
def _examples() -> Iterator[None]:
    """Run every example; the registries are as they were afterwards."""
    before = [(registry, dict(registry)) for registry in REGISTRIES]
    examples = DOCUMENT.read_text().partition("## Views in your own")[0]
    for block in re.findall(r"```python\n(.*?)```", examples, re.DOTALL):
        exec(block, {"__name__": "example"})
    yield
    for registry, kept in before:
        registry.clear()
        registry.update(kept)  # type: ignore[arg-type]


def test_the_protocol_measures(photos: Path) -> None:
    train, test = (open_canvas(str(photos / part), 32) for part in ("train", "test"))
    settings = EvaluationSettings(protocols={"nearest_mean": {"power": 1.0}})
    data = EvaluationData(train, None, test, 32)
    (result,) = evaluate_encoder(Pooled(), data, ["nearest_mean"], settings)
    assert result.targets["class"].values["top1"] == 100  # classes differ by their color
    assert result.settings["protocol"]["power"] == 1.0


def test_the_analysis_is_made() -> None:
    analysis = ANALYSES["mask_sizes"].kind()
    assert analysis.lacking(Subject("run")) == "This run has no masks."
    mask_DK = torch.tensor([[1.0, 0.5]])
    arrays = analysis.compute(Subject("run", operators=("flip", "blur"), mask_DK=mask_DK))
    assert np.array_equal(arrays["sizes"], [1.0, 0.5])
    assert analysis.caption(arrays) == "The largest mask is that of flip."
    assert analysis.draw(arrays).axes


def test_the_operator_darkens_the_corners() -> None:
    darker = OPERATORS["vignette"](32).apply(torch.ones(1, 3, 32, 32), {"strength": torch.ones(1)})
    assert darker[0, 0, 0, 0] == 0 < darker[0, 0, 16, 16]
    assert "vignette" in mast.ViewMaker("mast5_vignette", size=32).pipeline.names


# ----------------------------------------------------------------------------------- the method


def test_the_recipe_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "recipes"]) == 0
    assert "follower_small" in capsys.readouterr().out
    assert main(["show", "config", "--recipe", "follower_small"]) == 0
    assert "objective:" in capsys.readouterr().out


@pytest.mark.usefixtures("baselines")
def test_the_method_trains_and_is_measured(photos: Path, tmp_path: Path) -> None:
    config = mast.configure(
        "follower_small",
        data=photos / "train",
        out=str(tmp_path / "run"),
        size=32,
        encoder=asdict(ENCODER),
        objective={"projector": {"hidden": 32, "dim": 24}},
        epochs=1,
        batch_size=24,
        device="cpu",
    )
    run = mast.pretrain(config)
    method, start = mast.load_method(run.path), build_method(config)
    moved = {
        part: sum(
            float((after - before).detach().abs().sum())
            for (name, before), after in zip(
                start.get_submodule(part).named_parameters(),
                method.get_submodule(part).parameters(),
                strict=True,
            )
        )
        for part in ("teacher.projector", "projector")
    }
    assert 0 < moved["teacher.projector"] < moved["projector"]
    mast.evaluate(run, photos, ("knn", "embedding"))
    with pytest.raises(UserError, match="no masks"):
        mast.evaluate(run.path, photos, "ensemble")
    mast.analyze(run.path, photos, ("masks",))
    page = mast.report(run.path).read_text()
    assert "Follower trained timm:resnet18" in page
    assert "knn" in page
