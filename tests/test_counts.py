"""Counts that stand for speed and do not depend on the machine: calls and bytes.

A change that adds work moves them; one that is worth it moves the bound here too.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from counted import Counted
from torch import Tensor

from mast.augment import OPERATORS, PRESETS, Pipeline
from mast.augment.compiled import operators, resample
from mast.core.canvases import Canvases
from mast.methods import Mast, MastC, MastCConfig, MastConfig
from mast.models import Encoder, EncoderConfig
from mast.models.heads import Gaussian

SIZE, COUNT = 24, 64


def test_a_view_is_one_kernel_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counting(name: str, kernel: Callable[..., None]) -> Callable[..., None]:
        return lambda *arguments: (calls.append(name), kernel(*arguments))[1]

    own = {each.kernel for each in OPERATORS.values() if each.kernel}
    for module, names in ((operators, own), (resample, ("warp",))):
        for name in names:
            monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        pipeline = Pipeline(PRESETS["mast19"], SIZE, compiled=True)
        canvases = Canvases.of(torch.zeros(COUNT, 32, 32, 3, dtype=torch.uint8))
        pipeline.views(canvases, pipeline.draw(COUNT, torch.Generator().manual_seed(0)))
    finally:
        torch.set_num_threads(threads)
    assert len(calls) == 2 * len(set(calls)) == 2 * 13  # geometry is one warp


def objective(
    config: MastConfig | MastCConfig, operators: int, batch: int, dim: int
) -> Callable[[], Tensor]:
    """The loss of given embeddings."""
    torch.manual_seed(0)
    config.projector = replace(config.projector, hidden=8, dim=dim)
    names = PRESETS["mast19"].operators[:operators]
    encoder = Encoder(EncoderConfig("timm:resnet18", {"channels": [8, 8, 8, 8]}), SIZE)
    means = [torch.randn(batch, dim, requires_grad=True) for _ in range(2)]
    covariances = [(torch.rand(batch, dim) + 0.5).requires_grad_() for _ in range(2)]
    active_BK = torch.rand(batch, operators) < 0.5

    if isinstance(config, MastCConfig):
        of_subspaces = MastC(config, encoder, names)
        return lambda: of_subspaces.objective(*means, active_BK, of_subspaces.masks())["loss"]
    method, uncertain = Mast(config, encoder, names), config.uncertainty
    pair = [Gaussian(m, c if uncertain else None) for m, c in zip(means, covariances, strict=True)]
    return lambda: method.objective(*pair, active_BK, method.masks())["loss"]


CONFIGS = {
    "contrast": MastCConfig(),
    "distance": MastCConfig(compare="distance"),
    "uncertain": MastConfig(kl_weight=25.0),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_memory_of_the_objective_does_not_grow_with_k(name: str) -> None:
    peaks = {}
    for count in (5, 19):
        loss = objective(CONFIGS[name], count, batch=64, dim=512)
        with Counted() as counted:
            loss().backward()
        peaks[count] = counted.peak
    assert peaks[19] <= 1.1 * peaks[5]
    assert peaks[19] <= 28 * 64 * 512 * 4  # embeddings; one for every subspace would be 38 more
