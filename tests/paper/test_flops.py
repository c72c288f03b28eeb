"""Operations of a training step."""

import pytest
import torch

from mast.config import build_method, change
from mast.recipes import recipe
from paper.tables.flops import flops_an_image


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
