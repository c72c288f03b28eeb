"""Candidates for the objective: every part gets a gradient, and new terms equal closed forms."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny import ENCODER, OPERATORS, SIZE, make_views
from torch import Tensor
from torch.nn import functional

from experiments.objectives import CANDIDATES, acted, candidate, known
from mast.losses import invariance, nt_xent
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


def test_a_block_that_agrees_weighs_as_its_dimensions_do() -> None:
    method, views = build("conditioned", block=8).eval(), make_views(0)
    both = [method.encoder(image) for image in views.images]
    inputs = method.host_inputs(views, 0.0)
    seen = zip(both, method.acted(inputs), strict=True)
    blocks = [method.of_block(torch.cat([x, method.read(acted)], dim=1)) for x, acted in seen]
    common = [method.projector(x_BC) for x_BC in both]
    whole = [torch.cat(parts, dim=1) for parts in zip(common, blocks, strict=True)]
    expected = method.config.invariance_weight * invariance(*whole)
    torch.testing.assert_close(method(views, 0.0)["term/invariance"], expected)


def test_what_is_known_of_a_view_is_its_own_record() -> None:
    views = make_views(0)
    first_BT, second_BT = acted(views)
    assert first_BT.shape == second_BT.shape == (len(views.images[0]), known(OPERATORS))
    flips = 4  # behind the crop's three numbers and whether it acted
    for acted_BT, record in zip((first_BT, second_BT), views.records, strict=True):
        assert torch.equal(acted_BT[:, flips + 1].bool(), record.applied("horizontal_flip"))
        assert (acted_BT[~record.applied("color_jitter"), -5:] == 0).all()
