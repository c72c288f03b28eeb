"""Projectors: from an encoder's features to the embedding in which the losses work.

Shapes: B batch, L locations of the feature map (or patch tokens), C encoder features,
H hidden width, D embedding dimensions.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from mast.core.transfer import numbers
from mast.models.torchvision_models import Encoding

LastNorm = Literal["none", "affine", "plain"]
Activation = Literal["relu", "gelu"]


@dataclass
class MLPConfig:
    """Sizes of a projector or predictor; the defaults are those of VICReg's expander.

    Attributes:
        hidden: Width of the hidden layers.
        dim: Dimensions of the output.
    """

    hidden: int = 8192
    dim: int = 8192


@dataclass
class GaussianProjectorConfig:
    """Sizes and options of the projector to a Gaussian.

    Attributes:
        hidden: Width of the two fully-connected layers.
        dim: Dimensions of the embedding.
        pool: Where it pools: "after" runs the fully-connected layers at every location and pools
            before the heads, as the paper's appendix A; "before" pools the encoder's map first,
            which costs H x W times less; "average" takes the encoder's average-pooled
            representation (no GeM), as VICReg.
    """

    hidden: int = 8192
    dim: int = 4096
    pool: Literal["after", "before", "average"] = "after"


class Gaussian(NamedTuple):
    """A batch of Gaussian embeddings: mean (B, D) and covariance diagonal (B, D), float32.

    The covariance is None where the projector has no head for it.
    """

    mean_BD: Tensor
    covariance_BD: Tensor | None


class GeM(nn.Module):
    """Generalized-mean pooling with a learned power (Radenovic et al., 2018).

    Args:
        power: Start of p. It is used clamped to [1, 10] (1 is the average, 10 nearly the maximum)
            and held there by `project`, as outside it would have no gradient.
        eps: Floor of the features, which the power needs positive.
    """

    def __init__(self, power: float = 3.0, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.power = nn.Parameter(torch.tensor(power))

    @torch.no_grad()
    def project(self) -> None:
        """Bring the power back inside [1, 10]; on the edge itself clamping has no gradient."""
        self.power.clamp_(1.001, 9.999)

    def forward(self, features_BLC: Tensor) -> Tensor:
        """Pool features (B, L, C) over locations to (B, C), in float32."""
        power = self.power.clamp(1.0, 10.0)
        features_BLC = features_BLC.float().clamp(min=self.eps)
        # The mean scales with its features: pooling them relative to the largest is the same, and
        # their tenth power neither underflows (a dead channel: 1e-60) nor overflows.
        largest_B1C = features_BLC.detach().amax(dim=1, keepdim=True)
        pooled_BC = (features_BLC / largest_B1C).pow(power).mean(dim=1).pow(1.0 / power)
        return pooled_BC * largest_B1C.squeeze(1)


class MLP(nn.Module):
    """(Linear, BatchNorm, ReLU) for each hidden layer, then Linear: a projector or a predictor.

    Args:
        layers: Linear layers, the last included; VICReg's expander has three.
        inner_norm: Whether there is BatchNorm behind the hidden layers.
        activation: Behind each of them.
        bias: Whether the last layer has one.
        last_norm: BatchNorm behind the last layer, with a learned scale ("affine") or without
            ("plain").
    """

    def __init__(
        self,
        features: int,
        config: MLPConfig,
        *,
        layers: int = 3,
        inner_norm: bool = True,
        activation: Activation = "relu",
        bias: bool = False,
        last_norm: LastNorm = "none",
    ) -> None:
        super().__init__()
        self.trunk = _trunk(features, config.hidden, layers - 1, inner_norm, activation)
        self.head = nn.Linear(config.hidden, config.dim, bias=bias)
        self.norm: nn.Module = nn.Identity()
        if last_norm != "none":
            self.norm = nn.BatchNorm1d(config.dim, affine=last_norm == "affine")

    def forward(self, features_BC: Tensor) -> Tensor:
        """Map features to (B, D) in float32."""
        embedding_BD: Tensor = self.norm(self.head(self.trunk(features_BC)))
        return embedding_BD.float()


class GaussianProjector(nn.Module):
    """The projector g: an encoding to a Gaussian, with separate pooling for its two heads.

    Args:
        features: Dimensions of what it pools, the representation or the map of features.
        uncertain: Whether it also predicts a covariance.
        floor: What is added to the covariance, relu(h), to keep it positive.

    Reference:
        MAST, sections 3.1 and A; `pool` decides what the paper leaves open.
    """

    def __init__(
        self,
        features: int,
        config: GaussianProjectorConfig,
        uncertain: bool = True,
        floor: float = 0.1,
    ) -> None:
        super().__init__()
        self.pool = config.pool
        self.floor = floor
        self.trunk = _trunk(features, config.hidden)
        self.mean_head = nn.Linear(config.hidden, config.dim, bias=False)
        self.covariance_head = nn.Linear(config.hidden, config.dim) if uncertain else None
        if self.covariance_head is not None:
            # Covariances start around 1 (1 +- 0.4 at any width), so that the first distances
            # have the scale of VICReg's.
            nn.init.ones_(self.covariance_head.bias)
        names = ("mean", "covariance") if uncertain else ("mean",)
        self.pools = nn.ModuleDict({} if config.pool == "average" else {n: GeM() for n in names})
        self.heads = len(names)

    def forward(self, encoding: Encoding) -> Gaussian:
        """Map an encoding to a Gaussian of D dimensions, in float32."""
        mean_BH, *covariance_BH = self._pooled(encoding)
        mean_BD = self.mean_head(mean_BH).float()
        if self.covariance_head is None:
            return Gaussian(mean_BD, None)
        raw_BD = self.covariance_head(covariance_BH[0]).float()
        return Gaussian(mean_BD, raw_BD.relu() + self.floor)

    def powers(self) -> dict[str, float]:
        """The power of each head's GeM, by the head's name; empty without GeM."""
        powers = {name: pool.power for name, pool in self.pools.items() if isinstance(pool, GeM)}
        return dict(zip(powers, numbers(powers.values()), strict=True))

    def _pooled(self, encoding: Encoding) -> list[Tensor]:
        """The inputs of the mean head and, if there is one, of the covariance head, (B, H) each."""
        if self.pool == "average":
            return [self.trunk(encoding.representation_BC)] * self.heads
        features_BLC = encoding.features_BLC
        if self.pool == "before":
            pooled = torch.cat([pool(features_BLC) for pool in self.pools.values()])
            return list(self.trunk(pooled).chunk(self.heads))
        batch, locations, _ = features_BLC.shape
        hidden_BLH = self.trunk(features_BLC.flatten(0, 1)).unflatten(0, (batch, locations))
        return [pool(hidden_BLH) for pool in self.pools.values()]


def pair_head(features: int, hidden: int, numbers: int) -> nn.Sequential:
    """A head over the features of both views, (B, 2 features) to (B, numbers).

    Reference:
        AugSelf (Lee et al., NeurIPS 2021), section 4; one hidden layer, with BatchNorm.
    """
    return nn.Sequential(
        nn.Linear(2 * features, hidden),
        nn.BatchNorm1d(hidden),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, numbers),
    )


def _trunk(
    features: int,
    hidden: int,
    layers: int = 2,
    norm: bool = True,
    activation: Activation = "relu",
) -> nn.Sequential:
    parts: list[nn.Module] = []
    for layer in range(layers):
        parts.append(nn.Linear(hidden if layer else features, hidden))
        parts += [nn.BatchNorm1d(hidden)] if norm else []
        parts.append(nn.ReLU(inplace=True) if activation == "relu" else nn.GELU())
    return nn.Sequential(*parts)
