"""BatchNorm over processes: in one process it is PyTorch's; two are in test_distributed.py."""

import pytest
import torch
from torch import nn

from mast.models.sync_batchnorm import SyncBatchNorm, synchronise_batchnorm

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.BatchNorm1d, {}),
        (nn.BatchNorm2d, {"affine": False}),
        (nn.BatchNorm3d, {"momentum": None}),
    ],
)
def test_one_process_equals_batchnorm(kind, options):
    shape = {nn.BatchNorm1d: (6, 5), nn.BatchNorm2d: (6, 5, 3, 4), nn.BatchNorm3d: (6, 5, 2, 3, 2)}
    plain, synchronised = kind(5, **options), kind(5, **options)
    synchronise_batchnorm(synchronised, CPU)
    assert type(synchronised) is SyncBatchNorm
    for training in (True, True, False):
        first = torch.randn(shape[kind]) * 3 + 1
        second = first.clone()
        first.requires_grad_()
        second.requires_grad_()
        expected = plain.train(training)(first)
        output = synchronised.train(training)(second)
        expected.square().sum().backward()
        output.square().sum().backward()
        assert torch.equal(output, expected)
        assert torch.equal(first.grad, second.grad)
    before, after = plain.state_dict(), synchronised.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_every_batchnorm_below_keeps_its_parameters():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.BatchNorm1d(4)))
    parameters = list(model.parameters())
    assert synchronise_batchnorm(model, CPU) is model
    assert type(model[1]) is type(model[2][0]) is SyncBatchNorm
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    synchronise_batchnorm(model, CPU)  # twice is once
    assert type(model[1]) is SyncBatchNorm
