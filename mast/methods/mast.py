"""MAST: one embedding with a mask per operator: exempt blocks that tell what it did, or Eq. 7.

Shapes: B batch (B_global over processes), D embedding dimensions, K operators.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

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
from mast.methods.base import (
    Given,
    Images,
    Method,
    compile_objective,
    output_of,
)
from mast.methods.mast_config import MastConfig
from mast.methods.prediction import OperatorPrediction, destroyers
from mast.methods.vicreg import shared_covariance
from mast.models import (
    Encoder,
    ExemptBlocks,
    Gaussian,
    GaussianProjector,
    GeM,
    Masks,
)

EPS = 1e-6  # in denominators
SOURCES = {  # of the predictions, by `MastConfig.predict_from`
    "none": (),
    "block": ("block",),
    "representation": ("representation",),
    "both": ("block", "representation"),
}


class Mast(Method):
    """Huang, Goh, Gu, Susskind: Masked Augmentation Subspace Training (ICLR 2023)."""

    config: MastConfig
    gates = ("masks.logits_DK", "masks.logits_DG", "pools.mean.power", "pools.covariance.power")

    def __init__(
        self, config: MastConfig, encoder: Encoder, operators: tuple[str, ...], seed: int = 0
    ) -> None:
        super().__init__(config, encoder, operators, seed)
        self.mode = mode = config.resolved()
        features = encoder.dim if config.projector.pool == "average" else encoder.map_dim
        self.projector = GaussianProjector(features, config.projector, mode.uncertainty)
        self.masks: Masks | ExemptBlocks
        dim = config.projector.dim
        match mode.masks:
            case "exempt" | "budgeted" as kind:
                groups, share = _groups(operators, config.exempt), config.exempt_share
                self.masks = ExemptBlocks(dim, groups, share, kind, config.exempt_temperature, seed)
            case kind:
                start, scale = mode.mask_start, mode.normalize_masks
                self.masks = Masks(
                    dim, len(operators), kind, start, scale, config.mask_common, seed
                )
        dims = {"block": dim, "representation": encoder.dim}
        sources = SOURCES[mode.predict_from] if config.prediction.weight else ()
        told = destroyers(operators, config.exempt) if sources else ()
        told_P = torch.tensor([operators.index(name) for name in told], dtype=torch.int64)
        self.told_P: Tensor  # columns of the masks
        self.register_buffer("told_P", told_P, persistent=False)
        self.predictions = nn.ModuleDict(
            {
                source: OperatorPrediction(config.prediction, dims[source], told)
                for source in sources
                if told
            }
        )
        if config.projector.pool != "average" and "representation" not in self.predictions:
            encoder.freeze_behind_features()

    def given(self, views: Views, progress: float) -> dict[str, Tensor]:
        """Which subspaces are trained, and what the heads are asked for."""
        given = {"active_BK": views.active_BK}
        if self.predictions:  # all sources are asked for the same
            first = next(iter(self.predictions.values()))
            given |= cast(OperatorPrediction, first).asked(views)
        return given

    def step(self, images: Images, given: Given, phase: Any) -> dict[str, Tensor]:
        """The terms are those of `objective`, and the predictions."""
        encodings = [self.encoder.encode(images_BCHW) for images_BCHW in images]
        first, second = (self.projector(encoding) for encoding in encodings)
        mask_DK = self.masks()
        output = self.objective(first, second, given["active_BK"], mask_DK)
        for source, module in self.predictions.items():
            prediction = cast(OperatorPrediction, module)
            if source == "block":
                part_DP = 1 - mask_DK[:, self.told_P]
                told = prediction(first.mean_BD, second.mean_BD, given, part_DP)
            else:
                told = prediction(*(encoding.representation_BC for encoding in encodings), given)
            output = prediction.add_to(output, told, source)
        return output

    def objective(
        self, first: Gaussian, second: Gaussian, active_BK: Tensor, mask_DK: Tensor
    ) -> dict[str, Tensor]:
        """The loss of two Gaussian embeddings.

        Args:
            first: Mean and covariance of the first view, (B, D) each; the covariance may be None.
            second: Likewise, of the second view.
            active_BK: Which subspaces each pair trains, those of the operators that were applied
                to either view; boolean, shape (B, K).
            mask_DK: The masks.

        Returns:
            As `Method.step`; one term for each addend of Eq. 7, and "plain".
        """
        config, mode = self.config, self.mode
        first_BD, second_BD = gather(first.mean_BD), gather(second.mean_BD)  # B_global
        squared_BD = (first.mean_BD - second.mean_BD).square()
        plain = squared_BD.mean()

        if mode.standardize:
            variance_D = (first_BD.var(dim=0) + second_BD.var(dim=0)) / 2
            squared_BD = squared_BD / (variance_D + 1e-4)

        terms, statistics = {}, {}
        covariance_BD = None
        if first.covariance_BD is not None and second.covariance_BD is not None:
            covariance_BD = (first.covariance_BD + second.covariance_BD) / 2
            trace_B = covariance_BD.detach().mean(dim=1)
            statistics = {
                "stat/uncertainty": trace_B.mean(),
                "stat/uncertainty_spread": gather(trace_B).std(),
            }
            scale = global_mean(covariance_BD) if mode.normalize_uncertainty else 1.0
            terms["kl"] = mode.kl_weight * symmetric_kl(
                squared_BD, first.covariance_BD / scale, second.covariance_BD / scale
            )
        masked = self._masked(squared_BD, covariance_BD, mask_DK, active_BK)
        terms |= {
            "masked": mode.masked_weight * masked,
            "plain": mode.plain_weight * squared_BD.mean(),
            "sparsity": mode.sparsity_weight * mask_DK.mean(),
            "variance": config.variance_weight * (variance(first_BD) + variance(second_BD)) / 2,
            "covariance": config.covariance_weight * shared_covariance(first_BD, second_BD),
        }
        if isinstance(self.masks, ExemptBlocks) and self.masks.count:
            part_D = 1 - mask_DK.detach().amin(dim=1)
            deviation_D = first_BD.detach().std(dim=0)
            statistics["stat/block_std"] = (part_D * deviation_D).sum() / (part_D.sum() + EPS)
        deviation = first_BD.std(dim=0).mean()
        return statistics | output_of(terms, unmasked_distance=plain, embedding_std=deviation)

    def _masked(
        self, squared_BD: Tensor, covariance_BD: Tensor | None, mask_DK: Tensor, active_BK: Tensor
    ) -> Tensor:
        """The masked distance, whose gradient reaches the masks as `mask_gradient` says."""
        if self.mode.mask_gradient == "distance" or self.mode.masks != "learned":
            return self._distance(squared_BD, covariance_BD, mask_DK, active_BK)
        loss = self._distance(squared_BD, covariance_BD, mask_DK.detach(), active_BK)
        mean_D = global_sum(squared_BD.detach().mean(dim=0)) / processes()
        relative_BD = squared_BD.detach() / (mean_D + EPS)
        learned = self._distance(relative_BD, None, mask_DK, active_BK)
        return loss + learned - learned.detach()

    def _distance(
        self, squared_BD: Tensor, covariance_BD: Tensor | None, mask_DK: Tensor, active_BK: Tensor
    ) -> Tensor:
        """The masked distance of the batch, a scalar, over the uncertainty unless that is None."""
        mode = self.mode
        if mode.masks == "none":
            # One subspace, the whole embedding, for every pair.
            mask_DK, active_BK = mask_DK[:, :1], torch.ones_like(active_BK[:, :1])
        if mode.composition == "product":
            # One subspace a pair, the intersection of those of its operators.
            weight_BD = intersection(mask_DK, active_BK)
            active_BK = active_BK.any(dim=1, keepdim=True)
            distance_BK = (weight_BD * squared_BD).sum(dim=1, keepdim=True)
        else:
            distance_BK = masked_distance(squared_BD, mask_DK)
        if covariance_BD is not None:
            if mode.composition == "product":
                uncertainty_BK = (weight_BD * covariance_BD).sum(dim=1, keepdim=True)
            else:
                uncertainty_BK = masked_uncertainty(covariance_BD, mask_DK)
            if mode.normalize_uncertainty:
                active_share = global_mean(active_BK.to(uncertainty_BK.dtype))
                total = global_mean(uncertainty_BK * active_BK)
                uncertainty_BK = uncertainty_BK * (active_share + EPS) / (total + EPS)
            distance_BK = distance_BK / (uncertainty_BK + EPS)
        return subspace_mean(distance_BK, active_BK, mode.count)

    def after_step(self, progress: float) -> None:
        """Keep GeM powers in [1, 10]."""
        for module in self.projector.modules():
            if isinstance(module, GeM):
                module.project()

    def compile_parts(self) -> None:
        """The encoder, the projector and the objective."""
        super().compile_parts()
        self.projector.compile()
        compile_objective(self)

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """The mean of the Gaussian."""
        mean_BD: Tensor = self.projector(self.encoder.encode(images_BCHW)).mean_BD
        return mean_BD

    def subspaces(self) -> Tensor:
        """One mask an operator, whether learned or fixed."""
        mask_DK: Tensor = self.masks()
        return mask_DK

    def readings(self) -> dict[str, Tensor]:
        """Heads that see the block alone read the embedding."""
        if "representation" not in self.predictions:
            return {}
        return cast(OperatorPrediction, self.predictions["representation"]).readings()

    def uncertainty(self, images_BCHW: Tensor) -> Tensor | None:
        """The trace of the Gaussian's covariance."""
        if not self.mode.uncertainty:
            return None
        covariance_BD: Tensor = self.projector(self.encoder.encode(images_BCHW)).covariance_BD
        return covariance_BD.sum(dim=1)

    def statistics(self) -> dict[str, float]:
        """Mean, zero share, pairwise cosine and active share of the masks; GeM powers."""
        masks = self.masks.statistics()
        powers = self.projector.powers()
        return {
            "stat/mask_mean": masks.mean,
            "stat/mask_zero": masks.zero,
            "stat/mask_cosine": masks.cosine,
            "stat/mask_active_share": masks.active_share,
            **{f"stat/gem_{name}": power for name, power in powers.items()},
        }

    def warnings(self, metrics: Mapping[str, float]) -> Iterator[str]:
        """The traps of Eq. 7 (docs/method.md), and exempt blocks that hold or tell nothing."""
        remedy = "use objective.mode guarded"
        learned = self.mode.masks == "learned"
        if learned and metrics.get("stat/mask_mean", 1.0) < 0.02:
            yield (
                f"masks died: their mean is {metrics['stat/mask_mean']:.4f}. The masked distance "
                f"and the sparsity term both fall as the masks shrink; {remedy} or "
                "objective.normalize_masks l2."
            )
        free = self.mode.uncertainty and not self.mode.normalize_uncertainty
        if free and metrics.get("stat/uncertainty", 1.0) > 20.0:
            yield (
                f"uncertainty exploded: the mean predicted variance is "
                f"{metrics['stat/uncertainty']:.0f}. Every distance is divided by it and nothing "
                f"holds it down; {remedy} or objective.normalize_uncertainty."
            )
        if isinstance(self.masks, ExemptBlocks) and not self.masks.count:
            yield (
                f"nothing is exempt: objective.exempt is ({', '.join(self.config.exempt)}), and no "
                "operator of the views destroys that. What is trained is VICReg's objective."
            )
        share = metrics.get("stat/mask_active_share", 1.0)
        if learned and share < 0.25 / len(self.operators):
            yield (
                f"masks concentrate: a mask uses {share:.1%} of the dimensions, so most of the "
                "embedding is asked for no invariance. Give the masks a smaller rate "
                "(optimizer.gate_lr) or a larger objective.plain_weight."
            )
        # Wide masks overlap by design (leave_one_out); narrow ones that do have moved together.
        if learned and share < 0.5 and metrics.get("stat/mask_cosine", 0.0) > 0.9:
            yield (
                f"masks hide: their mean pairwise cosine is {metrics['stat/mask_cosine']:.2f}, so "
                "the operators share one subspace instead of each having its own. Give the "
                f"masks a smaller rate (optimizer.gate_lr), or {remedy}."
            )
        if metrics.get("stat/block_std", 1.0) < 0.3:
            yield (
                f"a block without variance: the exempt dimensions have a standard deviation of "
                f"{metrics['stat/block_std']:.2f} (the variance term wants 1), so they hold "
                "nothing that could be told. Raise objective.variance_weight."
            )
        yield from super().warnings(metrics)


def _groups(operators: tuple[str, ...], properties: tuple[str, ...]) -> list[int | None]:
    """Of each operator, which of the exempt properties that are destroyed at all it destroys."""
    members = [destroyers(operators, (destroyed,)) for destroyed in properties]
    group_of = {name: group for group, names in enumerate(filter(None, members)) for name in names}
    return [group_of.get(name) for name in operators]
