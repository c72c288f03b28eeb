"""VISReg: LeJEPA's distance with separate terms for center, scale and shape of the embeddings."""

from dataclasses import dataclass

from torch import Tensor

from mast.losses import normal_moments, sliced_wasserstein
from mast.methods.lejepa import LeJEPA, LeJEPAConfig


@dataclass
class VISRegConfig(LeJEPAConfig):
    """The weight of the regularizer."""

    regularizer_weight: float = 0.9
    directions: int = 4096


class VISReg(LeJEPA):
    """Wu, Balestriero, Levine: VISReg (arXiv 2606.02572)."""

    def regularizer(self, embedding_BD: Tensor, direction_DS: Tensor) -> dict[str, Tensor]:
        """Center, scale and shape of the embeddings of a view."""
        center, scale = normal_moments(embedding_BD)
        shape = sliced_wasserstein(embedding_BD, direction_DS)
        return {"center": center, "scale": scale, "shape": shape}
