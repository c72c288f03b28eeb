"""Candidates for the objective: every part gets a gradient, and new terms equal closed forms."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import ENCODER, OPERATORS, SIZE, make_views
from torch import Tensor
from torch.nn import functional

from experiments.objectives import CANDIDATES, candidate
from mast.losses import nt_xent
from mast.methods import Method
from mast.models import Encoder, MLPConfig

PREDICTED = ("color", "position")


def build(name: str, **changes: Any) -> Method:
    torch.manual_seed(0)
    projector = MLPConfig(hidden=32, dim=32)
    objective = replace(candidate(name).objective, projector=projector, **changes)
    return CANDIDATES[name].method(objective, Encoder(ENCODER, SIZE), OPERATORS, 0).train()


@pytest.mark.parametrize("name", CANDIDATES)
def test_every_part_learns(name: str) -> None:
    method = build(name, predicted=PREDICTED)
    output = method(make_views(0), 0.0)
    output["loss"].backward()
    assert all(own.grad is not None for own in method.parameters())
    terms = [value for term, value in output.items() if term.startswith("term/")]
    torch.testing.assert_close(output["loss"].detach(), torch.stack(terms).sum())
    assert torch.isfinite(method.eval().embed(make_views(0).images[0])).all()


def test_masked_contrast_is_a_contrast_in_the_subspace_of_each_anchor() -> None:
    method, views = build("masked_contrast", exempt_share=0.25), make_views(0)
    method.eval()
    output = method(views, 0.0)["loss"]
    z_ND = torch.cat([method.projector(method.encoder(image)) for image in views.images])
    jittered_B = views.active_BK[:, OPERATORS.index("color_jitter")]
    losses: list[Tensor] = []
    count = len(jittered_B)
    for anchor in range(2 * count):
        seen = slice(8, None) if jittered_B[anchor % count] else slice(None)  # 8 of 32 are exempt
        cosine_N = functional.cosine_similarity(z_ND[anchor, seen], z_ND[:, seen], dim=1)
        others = torch.arange(2 * count) != anchor
        partner = (anchor + count) % (2 * count)
        losses.append(torch.logsumexp(cosine_N[others] / 0.1, 0) - cosine_N[partner] / 0.1)
    torch.testing.assert_close(output, torch.stack(losses).mean(), rtol=1e-4, atol=1e-5)
    nothing = build("masked_contrast", exempt=()).eval()
    z_ND = torch.cat([nothing.projector(nothing.encoder(image)) for image in views.images])
    plain = nt_xent(*z_ND.chunk(2), 0.1)
    torch.testing.assert_close(nothing(views, 0.0)["loss"], plain, rtol=1e-4, atol=1e-5)
