"""Weights of dimensions by operator, worked out by hand."""

import pytest
import torch

from mast.core.errors import UserError
from mast.models.selection import exempt_blocks, selection

OPERATORS = ("color_jitter", "grayscale", "rotate", "gaussian_blur")
# Exempt: the last two dimensions from both colors, the second from rotations; none from blur.
MASKS = torch.tensor(
    [[2.0, 2.0, 3.0, 1.0], [2.0, 2.0, 0.0, 1.0], [0.5, 0.5, 3.0, 1.0], [0.0, 0.0, 3.0, 1.0]]
)


def test_weights_by_hand() -> None:
    assert selection(MASKS, OPERATORS).tolist() == [1, 1, 1, 1]
    assert selection(MASKS, OPERATORS, ["grayscale"]).tolist() == [1, 1, 0.25, 0]
    assert selection(MASKS, OPERATORS, match=["grayscale"]).tolist() == [0, 0, 0.75, 1]
    both = ["color_jitter", "grayscale"]
    assert selection(MASKS, OPERATORS, both, ["rotate"]).tolist() == [0, 1, 0, 0]
    # What must agree in several things needs the dimensions of each.
    assert selection(MASKS, OPERATORS, match=both).tolist() == [0, 0, 0.75, 1]  # one mask
    assert selection(MASKS, OPERATORS, match=["rotate", "grayscale"]).tolist() == [0, 1, 0.75, 1]
    assert selection(MASKS, OPERATORS, ["grayscale"], ["rotate"]).tolist() == [0, 1, 0, 0]
    assert selection(MASKS, OPERATORS, ["gaussian_blur"]).tolist() == [1, 1, 1, 1]


def test_operators_with_the_same_mask_share_a_block() -> None:
    blocks = exempt_blocks(MASKS, OPERATORS)
    assert list(blocks) == ["color_jitter+grayscale", "rotate"]
    assert blocks["color_jitter+grayscale"].tolist() == [0, 0, 0.75, 1]
    assert blocks["rotate"].tolist() == [0, 1, 0, 0]
    assert exempt_blocks(torch.ones(4, 2), OPERATORS[:2]) == {}
    # A mask that died has no subspace to be exempt from.
    assert exempt_blocks(torch.zeros(4, 1), OPERATORS[:1]) == {}


@pytest.mark.parametrize(
    ("ignore", "match", "message"),
    [
        (["grayscle"], [], r"unknown operator 'grayscle'\. Did you mean 'grayscale'"),
        ([], ["invert"], "unknown operator 'invert'"),
        (["rotate"], ["rotate"], "match: expected operators that are not ignored, got rotate"),
        ([], ["gaussian_blur"], r"some dimensions \(color_jitter, grayscale, rotate\), got gauss"),
        ([], ["rotate", "gaussian_blur"], "got gaussian_blur: all dimensions are invariant"),
        (["rotate"], ["rotate", "invert"], "unknown operator 'invert'"),
    ],
)
def test_what_cannot_be_chosen(ignore: list[str], match: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        selection(MASKS, OPERATORS, ignore, match)


def test_a_run_that_kept_nothing_says_so() -> None:
    with pytest.raises(UserError, match=r"some dimensions \(none\), got grayscale"):
        selection(torch.ones(4, 2), OPERATORS[:2], match=["grayscale"])
    with pytest.raises(UserError, match="mask did not die, got grayscale"):
        selection(torch.zeros(4, 2), OPERATORS[:2], ["grayscale"])
    apart = torch.eye(2)
    with pytest.raises(UserError, match="ignore color_jitter grayscale: expected operators whose"):
        selection(apart, OPERATORS[:2], list(OPERATORS[:2]))
    with pytest.raises(UserError, match="not finite"):
        selection(apart * torch.nan, OPERATORS[:2])
