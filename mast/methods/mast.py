"""MAST: Eq. 7 of the paper in the form that trains, and as printed.

As printed it collapses (docs/method.md). The other form keeps learned masks, the predicted
uncertainty and both stages, with what holds masks and uncertainty; its constants are here.

Shapes: B batch (B_global over processes), D embedding dimensions, K operators.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from torch import Tensor

from mast.augment import Views
from mast.core.collectives import gather, global_mean, global_sum, processes
from mast.losses import (
    intersection,
    masked_distance,
    masked_uncertainty,
    subspace_mean,
    symmetric_kl,
    variance,
)
from mast.methods.base import TWO, Method, MethodConfig, output_of
from mast.methods.parts import HostInputs, Images, shared_covariance
from mast.models.heads import Gaussian, GaussianProjector, GaussianProjectorConfig, GeM
from mast.models.masks import MaskKind, Masks

EPS = 1e-6  # in denominators
FLOOR, PRINTED_FLOOR = 0.1, 1e-6  # of the covariance
# What weights are that are None.
WEIGHTS = {"masked_weight": 10.0, "kl_weight": 0.0, "sparsity_weight": -2.0}
PRINTED_WEIGHTS = {"masked_weight": 25.0, "kl_weight": 25.0, "sparsity_weight": 600.0}


@dataclass
class MastConfig(MethodConfig):
    """The paper's objective, with the variants of its Tables 5 and 6.

    Attributes:
        printed: Eq. 7 as printed: the masks collapse and the uncertainty explodes.
        masks: "learned", "handcrafted" (disjoint blocks, fixed) or "none" (one term over the whole
            embedding: Table 6's "uncertainty only").
        uncertainty: Divide distances by the predicted covariance.
        projector: Sizes and pooling of the Gaussian projector.
        masked_weight: Weight of the masked distance. None: 10, or as printed 25, which is
            lambda = 25 d / K.
        kl_weight: lambda_2, if there is a covariance. None: 0, or as printed 25.
        sparsity_weight: lambda_1 d K: weight of the mean mask entry; a negative one rewards wide
            masks. None: -2, or as printed 600.
        variance_weight: alpha.
        covariance_weight: beta.
    """

    takes = TWO
    printed: bool = False
    masks: MaskKind = "learned"
    uncertainty: bool = True
    projector: GaussianProjectorConfig = field(default_factory=GaussianProjectorConfig)
    masked_weight: float | None = None
    kl_weight: float | None = None
    sparsity_weight: float | None = None
    variance_weight: float = 25.0
    covariance_weight: float = 1.0

    def weight(self, name: str) -> float:
        """A weight of Eq. 7: this field, or what None stands for."""
        own: float | None = getattr(self, name)
        return (PRINTED_WEIGHTS if self.printed else WEIGHTS)[name] if own is None else own


class Mast(Method):
    """Huang, Goh, Gu, Susskind: Masked Augmentation Subspace Training (ICLR 2023)."""

    config: MastConfig
    projector: GaussianProjector
    masks: Masks
    gates = ("masks.logits_DK", "pools.mean.power", "pools.covariance.power")

    def build(self) -> None:
        config, encoder = self.config, self.encoder
        pooled, printed = config.projector.pool == "average", config.printed
        self.projector = GaussianProjector(
            encoder.dim if pooled else encoder.map_dim,
            config.projector,
            config.uncertainty,
            PRINTED_FLOOR if printed else FLOOR,
        )
        dim, count = config.projector.dim, len(self.operators)
        self.masks = Masks(dim, count, config.masks, printed, self.seed)
        if not pooled:
            encoder.freeze_behind_features()

    def host_inputs(self, views: Views, progress: float) -> dict[str, Tensor]:
        """Which subspaces are trained."""
        return {"active_BK": views.active_BK}

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        """The terms are those of `objective`."""
        first, second = (self.projector(self.encoder.encode(images_BCHW)) for images_BCHW in images)
        return self.objective(first, second, inputs["active_BK"], self.masks())

    def objective(
        self, first: Gaussian, second: Gaussian, active_BK: Tensor, mask_DK: Tensor
    ) -> dict[str, Tensor]:
        """Eq. 7 of two Gaussian embeddings.

        Args:
            first: Mean and covariance of the first view, (B, D) each; the covariance may be None.
            second: Likewise, of the second view.
            active_BK: Which subspaces each pair trains, those of the operators that were applied
                to either view; boolean, (B, K).
            mask_DK: The masks.

        Returns:
            As `Method.step`.
        """
        config = self.config
        first_BD, second_BD = gather(first.mean_BD), gather(second.mean_BD)  # B_global
        squared_BD = (first.mean_BD - second.mean_BD).square()
        terms, statistics = {}, {}
        covariance_BD = None
        if first.covariance_BD is not None and second.covariance_BD is not None:
            covariance_BD = (first.covariance_BD + second.covariance_BD) / 2
            trace_B = covariance_BD.detach().mean(dim=1)
            statistics["uncertainty"] = trace_B.mean()
            statistics["uncertainty_spread"] = gather(trace_B).std()
            # Relative to its mean, so that its scale has no gradient.
            scale = 1.0 if config.printed else global_mean(covariance_BD)
            terms["kl"] = config.weight("kl_weight") * symmetric_kl(
                squared_BD, first.covariance_BD / scale, second.covariance_BD / scale
            )
        masked = self._masked(squared_BD, covariance_BD, mask_DK, active_BK)
        terms |= {
            "masked": config.weight("masked_weight") * masked,
            "sparsity": config.weight("sparsity_weight") * mask_DK.mean(),
            "variance": config.variance_weight * (variance(first_BD) + variance(second_BD)) / 2,
            "covariance": config.covariance_weight * shared_covariance(first_BD, second_BD),
        }
        statistics["unmasked_distance"] = squared_BD.mean()
        statistics["embedding_std"] = first_BD.std(dim=0).mean()
        return output_of(terms, **statistics)

    def _masked(
        self, squared_BD: Tensor, covariance_BD: Tensor | None, mask_DK: Tensor, active_BK: Tensor
    ) -> Tensor:
        """The masked distance.

        Unless as printed, learned masks learn from differences relative to each dimension's mean
        over the global batch. A mask then compares operators within a dimension, and gains nothing
        by leaving dimensions that are hard for every operator, or from the uncertainty; the network
        still learns from the distance itself.
        """
        if self.config.printed or self.config.masks != "learned":
            return self._distance(squared_BD, covariance_BD, mask_DK, active_BK)
        loss = self._distance(squared_BD, covariance_BD, mask_DK.detach(), active_BK)
        mean_D = global_sum(squared_BD.detach().mean(dim=0)) / processes()
        relative_BD = squared_BD.detach() / (mean_D + EPS)
        learned = self._distance(relative_BD, None, mask_DK, active_BK)
        return loss + learned - learned.detach()

    def _distance(
        self, squared_BD: Tensor, covariance_BD: Tensor | None, mask_DK: Tensor, active_BK: Tensor
    ) -> Tensor:
        """The masked distance of the batch, a scalar, over the uncertainty unless that is None.

        Of a pair on which several operators acted, Eq. 4 adds the distances in their subspaces, as
        is done as printed and for disjoint masks. Otherwise it is the distance in the intersection
        of the subspaces, relative to its size.
        """
        config = self.config
        if config.masks == "none":
            # One subspace, the whole embedding, for every pair.
            mask_DK, active_BK = mask_DK[:, :1], active_BK.new_ones(len(active_BK), 1)
        added = config.printed or config.masks == "handcrafted"
        if added:
            distance_BK = masked_distance(squared_BD, mask_DK)
        else:
            weight_BD = intersection(mask_DK, active_BK)
            active_BK = active_BK.any(dim=1, keepdim=True)
            distance_BK = (weight_BD * squared_BD).sum(dim=1, keepdim=True)
        if covariance_BD is not None:
            if added:
                uncertainty_BK = masked_uncertainty(covariance_BD, mask_DK)
            else:
                uncertainty_BK = (weight_BD * covariance_BD).sum(dim=1, keepdim=True)
            if not config.printed:  # relative to its mean over the global batch
                active_share = global_mean(active_BK.to(uncertainty_BK.dtype))
                total = global_mean(uncertainty_BK * active_BK)
                uncertainty_BK = uncertainty_BK * (active_share + EPS) / (total + EPS)
            distance_BK = distance_BK / (uncertainty_BK + EPS)
        return subspace_mean(distance_BK, active_BK, "all" if config.printed else "active")

    def after_step(self, progress: float) -> None:
        """Keep GeM powers in [1, 10]."""
        for pool in self.projector.pools.values():
            cast(GeM, pool).project()

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """The mean of the Gaussian."""
        mean_BD: Tensor = self.projector(self.encoder.encode(images_BCHW)).mean_BD
        return mean_BD

    def statistics(self) -> dict[str, float]:
        """Mean, zero share, pairwise cosine and active share of the masks; GeM powers."""
        powers = self.projector.powers()
        return {
            **{f"stat/mask_{name}": value for name, value in self.masks.statistics().items()},
            **{f"stat/gem_{name}": power for name, power in powers.items()},
        }

    def warnings(self, metrics: Mapping[str, float]) -> Iterator[str]:
        """The traps of Eq. 7 (docs/method.md)."""
        learned = self.config.masks == "learned"
        if learned and metrics.get("stat/mask_mean", 1.0) < 0.02:
            yield (
                f"masks died: their mean is {metrics['stat/mask_mean']:.4f}. The masked distance "
                "and the sparsity term both fall as the masks shrink: leave out objective.printed."
            )
        free = self.config.uncertainty and self.config.printed
        if free and metrics.get("stat/uncertainty", 1.0) > 20.0:
            yield (
                "uncertainty exploded: the mean predicted variance is "
                f"{metrics['stat/uncertainty']:.0f}. Every distance is divided by it and nothing "
                "holds it down: leave out objective.printed."
            )
        share = metrics.get("stat/mask_active_share", 1.0)
        if learned and share < 0.25 / len(self.operators):
            yield (
                f"masks concentrate: a mask uses {share:.1%} of the dimensions, so most of the "
                "embedding need not be invariant to anything. Give the masks a smaller rate "
                "(optimizer.gate_lr) or a larger reward (a lower objective.sparsity_weight)."
            )
        # Wide masks overlap by design; narrow ones that do have moved together.
        if learned and share < 0.5 and metrics.get("stat/mask_cosine", 0.0) > 0.9:
            yield (
                f"masks hide: their mean pairwise cosine is {metrics['stat/mask_cosine']:.2f}, so "
                "the operators share one subspace instead of each having its own. Give the "
                "masks a smaller rate (optimizer.gate_lr)."
            )
        yield from super().warnings(metrics)
