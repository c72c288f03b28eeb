"""The examples of docs/extending.md run as they stand."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mast.analyses import ANALYSES, Subject
from mast.data import open_canvas
from mast.measure.sets import EvaluationData
from mast.protocols import EVALUATORS
from mast.protocols.run import EvaluationSettings, evaluate_encoder

DOCUMENT = Path(__file__).parent.parent / "docs" / "extending.md"


class Mean(nn.Module):
    """The mean colour of an image."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return images_BCHW.mean(dim=(2, 3))


@pytest.fixture(autouse=True)
def _examples() -> Iterator[None]:
    """Run every example; the registries are as they were afterwards."""
    before = [(registry, dict(registry)) for registry in (EVALUATORS, ANALYSES)]
    for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        exec(block, {"__name__": "example"})
    yield
    for registry, kept in before:
        registry.clear()
        registry.update(kept)  # type: ignore[arg-type]


def test_the_protocol_measures(photos: Path) -> None:
    train, test = (open_canvas(str(photos / part), 32) for part in ("train", "test"))
    settings = EvaluationSettings(protocols={"nearest_mean": {"power": 1.0}})
    data = EvaluationData(train, None, test, 32)
    (result,) = evaluate_encoder(Mean(), data, ["nearest_mean"], settings)
    assert result.targets["class"].values["top1"] == 100  # classes differ by their colour
    assert result.settings["protocol"]["power"] == 1.0


def test_the_analysis_is_made() -> None:
    analysis = ANALYSES["mask_sizes"].kind()
    assert analysis.lacking(Subject("run")) == "This run has no masks."
    mask_DK = torch.tensor([[1.0, 0.5]])
    arrays = analysis.compute(Subject("run", operators=("flip", "blur"), mask_DK=mask_DK))
    assert np.array_equal(arrays["sizes"], [1.0, 0.5])
    assert analysis.caption(arrays) == "The largest mask is that of flip."
    assert analysis.draw(arrays).axes
