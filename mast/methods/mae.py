"""MAE: from a quarter of an image's patches the pixels of the others.

Shapes: B images of this process, L patches of an image, S of them shown, W dimensions of the
decoder, P numbers of a patch.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.losses import pixel_error
from mast.methods.base import Method, MethodConfig, output_of
from mast.methods.parts import HostInputs, Images, Noise, count_shown
from mast.models.patches import ShownPatches, patches_of, picked, positions


@dataclass
class MAEConfig(MethodConfig):
    """The masking and the decoder.

    Attributes:
        hidden: Share of the patches that the encoder does not see, in (0, 1).
        dim: W.
        depth: Blocks of the decoder.
        heads: Of a block's attention.
    """

    limits: ClassVar = {
        "hidden": "(0, 1)",
        "dim": "[4, inf)",
        "depth": "[1, 1000]",
        "heads": "[1, inf)",
    }
    hidden: float = 0.75
    dim: int = 512
    depth: int = 8
    heads: int = 16

    def check(self) -> None:
        super().check()
        if self.dim % (4 * self.heads):
            heads = f"four times heads ({self.heads})"
            raise UserError(f"objective.dim: expected a multiple of {heads}, got {self.dim}")


class MAE(Method):
    """He, Chen, Xie, Li, Dollár, Girshick: Masked Autoencoders Are Scalable Vision Learners (2022).

    Of each view the loss is the squared error over the hidden patches. The decoder
    does without the class token, which the official one has, so that the mean of the patches should
    be the representation, as in the recipes. It starts as in the official code; the encoder starts
    as timm has it, and its positions are learned.
    """

    config: MAEConfig
    position_LW: Tensor

    def build(self) -> None:
        config, encoder = self.config, self.encoder
        encoder.freeze_behind_features()
        self.shown = ShownPatches(encoder)
        self.noise = Noise(self.seed, self.shown.grid**2)
        self.seen = count_shown(config.hidden, self.shown.grid**2)
        self.enter = nn.Linear(encoder.dim, config.dim)
        self.hidden_1W = nn.Parameter(0.02 * torch.randn(1, config.dim))
        self.register_buffer("position_LW", positions(self.shown.grid, config.dim), False)
        block = nn.TransformerEncoderLayer(
            config.dim, config.heads, 4 * config.dim, 0.0, "gelu", batch_first=True, norm_first=True
        )
        norm = nn.LayerNorm(config.dim)
        self.decoder = nn.TransformerEncoder(block, config.depth, norm, enable_nested_tensor=False)
        self.leave = nn.Linear(config.dim, encoder.channels * self.shown.side**2)
        for part in (self.enter, self.decoder, self.leave):
            part.apply(_start)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """One term, "pixels"."""
        losses = [self._loss(x, inputs[f"noise_{view}"]) for view, x in enumerate(images)]
        return output_of({"pixels": torch.stack(losses).mean()})

    def _loss(self, images_BCHW: Tensor, noise_BL: Tensor) -> Tensor:
        order_BL = noise_BL.argsort(dim=1)
        shown_BS, hidden_BH = order_BL[:, : self.seen], order_BL[:, self.seen :]
        with self.shown.only(shown_BS):
            features_BSC = self.encoder.encode(images_BCHW).features_BLC
        seen_BSW = self.enter(features_BSC)
        blank_BHW = self.hidden_1W.to(seen_BSW.dtype).expand(*hidden_BH.shape, -1)
        tokens_BLW = picked(torch.cat([seen_BSW, blank_BHW], dim=1), order_BL.argsort(dim=1))
        predicted_BLP = self.leave(self.decoder(tokens_BLW + self.position_LW))
        pixels_BCHW = (images_BCHW - self.encoder.mean) / self.encoder.std
        target_BLP = patches_of(pixels_BCHW, self.shown.side)
        return pixel_error(picked(predicted_BLP, hidden_BH), picked(target_BLP, hidden_BH))

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """The mean over all patches of what enters the decoder, (B, W)."""
        entered_BLW = self.enter(self.encoder.encode(images_BCHW).features_BLC)
        return entered_BLW.mean(dim=1).float()


def _start(module: nn.Module) -> None:
    """As `initialize_weights` of the official code; PyTorch's blocks are copies of one."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.MultiheadAttention):
        nn.init.xavier_uniform_(module.in_proj_weight)
