"""Gaussian noise from a counter-based hash: the same field on every device, and in every replay.

Legend: B samples, C channels, H and W pixels, N numbers of a field. Images are in [0, 1] and the
kernel clips to it.
"""

from math import inf, pi

import torch
from torch import Tensor

from mast.augment.operator import Operator, Parameters, Stage, operator, per_pixel


def _mix(bits: Tensor) -> Tensor:
    """Scramble int32 values so that neighbours share nothing (Wellons' lowbias32)."""
    bits = bits ^ ((bits >> 16) & 0xFFFF)
    bits = bits * 0x7FEB352D
    bits = bits ^ ((bits >> 15) & 0x1FFFF)
    bits = bits * (0x846CA68B - 2**32)
    return bits ^ ((bits >> 16) & 0xFFFF)


def normal_field(seed_B: Tensor, count: int) -> Tensor:
    """field_BN: N = count standard normal numbers, a pure function of a seed and a position.

    A hash of both gives 32 bits, two uniform numbers, and by Box-Muller two normal ones, so every
    device yields the same field and a record can be replayed. Seeds are int64 in [0, 2^31).
    """
    position = torch.arange((count + 1) // 2, device=seed_B.device, dtype=torch.int32)
    bits = _mix(_mix(position + 1) ^ _mix(seed_B.to(torch.int32))[:, None])
    high = ((bits >> 16) & 0xFFFF).float().add_(1)
    low = (bits & 0xFFFF).float()
    radius = high.mul_(2**-16).log_().mul_(-2).sqrt_()
    angle = low.mul_(2 * pi * 2**-16)
    return torch.cat([angle.cos().mul_(radius), angle.sin().mul_(radius)], dim=1)[:, :count]


def add_noise(images_BCHW: Tensor, std_B: Tensor, seed_B: Tensor) -> Tensor:
    """Add Gaussian noise of each sample's standard deviation and seed, clipped."""
    seed_B = seed_B.to(images_BCHW.device, non_blocking=True)
    field = normal_field(seed_B, images_BCHW[0].numel()).reshape(images_BCHW.shape)
    return torch.addcmul(images_BCHW, field, per_pixel(std_B, images_BCHW)).clamp_(0, 1)


@operator("gaussian_noise", "noise", Stage.NOISE, add_noise, {"std": 0.0}, within={"std": (0, inf)})
class GaussianNoise(Operator):
    """Additive Gaussian noise.

    Args:
        std: Range of the standard deviation on [0, 1].
    """

    std: tuple[float, float] = (0.0, 0.1)

    def sample(self, n: int, generator: torch.Generator) -> Parameters:
        drawn = super().sample(n, generator)
        return drawn | {"seed": torch.randint(2**31, (n,), generator=generator)}
