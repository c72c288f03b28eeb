"""What `benchmarks/oracles.py` measures: losses against lightly's, in float64."""

import pytest
import torch
from oracles import PAIRS, compared


@pytest.mark.parametrize("name", PAIRS)
def test_a_loss_is_lightlys(name: str) -> None:
    # lightly keeps DINO's temperatures in float32.
    close = 1e-7 if name == "DINO" else 1e-13
    deviations = compared(PAIRS[name], torch.float64)
    assert max(deviations.values()) < close
    assert deviations.keys() == {"value", "gradient"}
