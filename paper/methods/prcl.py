"""PrCL: MoCo v2 whose encoder also predicts hidden pixels.

Shapes: B images of this process, L locations of the encoder's map, H of them hidden, P numbers of
the pixels behind one.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mast.core.errors import UserError
from mast.losses import pixel_error
from mast.methods.base import PairMethod
from mast.methods.moco import MoCoConfig, contrast_with_queue
from mast.methods.parts import HostInputs, Images, Noise, Queue, Teacher, count_shown
from mast.models import MLP, MLPConfig
from mast.models.patches import patches_of, picked


@dataclass
class PrCLConfig(MoCoConfig):
    """The contrast of MoCo v2, and the prediction of pixels.

    Attributes:
        hidden: Share of the patches that are hidden where pixels are predicted, in (0, 1); a patch
            is what lies behind one location of the encoder's map.
    """

    limits: ClassVar = {"hidden": "(0, 1)"}
    hidden: float = 0.5


class PrCL(PairMethod):
    """Li et al.: Addressing Feature Suppression in Unsupervised Visual Representations (2020).

    Predictive contrastive learning: the representation must not lose what the contrast has no use
    for. No code was found, and what is not in the paper that MAST compares with is chosen here:
    patches of the first view are replaced by the mean color, the encoder sees the view once more,
    and two layers at every location of its map predict the hidden pixels, as MAE has it.
    """

    config: PrCLConfig
    shape: ClassVar = {"layers": 2, "inner_norm": False, "bias": True}

    def build(self) -> None:
        super().build()
        config, encoder = self.config, self.encoder
        grid = math.isqrt(encoder.locations)
        if grid**2 != encoder.locations or encoder.size % grid:
            raise UserError(
                f"PrCL predicts the pixels behind a square map, and that of "
                f"{encoder.config.name!r} has {encoder.locations} locations over {encoder.size} "
                "pixels"
            )
        self.teacher = Teacher(encoder, self.projector, config.momentum, rises=False)
        self.queue = Queue(config.queue, config.projector.dim, self.seed)
        self.noise = Noise(self.seed, encoder.locations)
        self.seen = count_shown(config.hidden, encoder.locations)
        self.side = encoder.size // grid
        sizes = MLPConfig(encoder.map_dim, encoder.channels * self.side**2)
        self.decoder = MLP(encoder.map_dim, sizes, layers=2, inner_norm=False, bias=True)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """The terms of MoCo, and "pixels"."""
        output = contrast_with_queue(self, images, inputs)
        pixels = self._error(images[0], inputs["noise_0"])
        return {**output, "loss": output["loss"] + pixels, "term/pixels": pixels.detach()}

    def _error(self, images_BCHW: Tensor, noise_BL: Tensor) -> Tensor:
        """Of the hidden pixels, as they are predicted from the others."""
        encoder, side = self.encoder, self.side
        if images_BCHW.shape[-1] != encoder.size:
            raise UserError(
                f"PrCL hides patches of views of {encoder.size} pixels, the run's size, got "
                f"{images_BCHW.shape[-1]}"
            )
        hidden_BH = noise_BL.argsort(dim=1)[:, self.seen :]
        pixels_BLP = patches_of(images_BCHW, side)
        mean_P, std_P = (x.flatten().repeat(side**2) for x in (encoder.mean, encoder.std))
        target_BHP = (picked(pixels_BLP, hidden_BH) - mean_P) / std_P
        index_BHP = hidden_BH[..., None].expand_as(target_BHP)
        blank_BHP = mean_P.to(pixels_BLP.dtype).expand_as(target_BHP)
        seen_BCHW = images_of(pixels_BLP.scatter(1, index_BHP, blank_BHP), side)
        features_BHC = picked(encoder.encode(seen_BCHW).features_BLC, hidden_BH)
        predicted_BHP = self.decoder(features_BHC.flatten(0, 1)).view_as(target_BHP)
        return pixel_error(predicted_BHP, target_BHP)

    def get_extra_state(self) -> Tensor:  # what is drawn next does not follow from weights
        return torch.tensor(self.noise.seed)

    def set_extra_state(self, state: Tensor) -> None:
        self.noise.seed = int(state)


def images_of(patches_BLP: Tensor, side: int) -> Tensor:
    """Square images (B, C, H, H) of rows of patches, as `patches_of` makes them."""
    grid = math.isqrt(patches_BLP.shape[1])
    parts = patches_BLP.unflatten(2, (side, side, -1)).unflatten(1, (grid, grid))
    return parts.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)
