"""Candidates for the objective: every part gets a gradient."""

from dataclasses import replace

import pytest
import torch
from tiny import ENCODER, OPERATORS, SIZE, make_views

from experiments.objectives import CANDIDATES, candidate
from mast.models import Encoder, MLPConfig


@pytest.mark.parametrize("name", CANDIDATES)
def test_every_part_learns(name: str) -> None:
    objective = replace(
        candidate(name).objective,
        projector=MLPConfig(hidden=32, dim=32),
        predicted=("color", "position"),
    )
    method = CANDIDATES[name].method(objective, Encoder(ENCODER, SIZE), OPERATORS, 0).train()
    output = method(make_views(0), 0.0)
    output["loss"].backward()
    assert all(own.grad is not None for own in method.parameters())
    terms = [value for term, value in output.items() if term.startswith("term/")]
    torch.testing.assert_close(output["loss"].detach(), torch.stack(terms).sum())
    assert torch.isfinite(method.eval().embed(make_views(0).images[0])).all()
