"""`mast.models.folded`."""

import torch
from torch import nn

from mast.models import Encoder, EncoderConfig
from mast.models.depths import Depths
from mast.models.folded import folded

IMAGES = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def _with_statistics(encoder: nn.Module) -> nn.Module:
    encoder.train()(IMAGES)
    return encoder.eval()


def test_a_folded_encoder_has_no_norm_and_gives_the_same_at_all_depths() -> None:
    torch.manual_seed(0)
    encoder = _with_statistics(Encoder(EncoderConfig("timm:efficientnet_lite0"), 32))
    depths = Depths(encoder, 32).eval()
    fast = folded(depths, IMAGES)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in fast.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in depths.modules())
    with torch.inference_mode():
        torch.testing.assert_close(fast(IMAGES), depths(IMAGES), rtol=1e-3, atol=1e-4)


def test_a_module_whose_order_is_another_stays_as_it_is() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
            mean_BD: torch.Tensor = self.conv(self.norm(images_BCHW).relu()).mean((2, 3))
            return mean_BD

    module = _with_statistics(Norm())
    assert folded(module, IMAGES) is module
