"""A changed image is the same in every batch."""

import torch

from mast.evaluation.changes import changed_by


def test_a_change_does_not_depend_on_batches() -> None:
    images = torch.rand(6, 3, 32, 32)
    change = changed_by("rotate", 0.6, 32, 6, seed=1)
    whole = change.apply(images, torch.arange(6))
    parts = [change.apply(images[i : i + 2], torch.arange(i, i + 2)) for i in (0, 2, 4)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-6)
