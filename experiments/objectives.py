"""Candidates for the objective, as methods on the public interface; `candidates` measures them.

Shapes: B images, C dimensions of the representation, F numbers of its shallower depths, D embedding
dimensions, E of them in the block, T numbers that say what the operators did to a view, J heads.
One process: nothing is gathered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.augment import OPERATORS, Views
from mast.config import PretrainConfig
from mast.losses import contrast, covariance, invariance, variance
from mast.methods import METHODS, HostInputs, Images, MethodEntry
from mast.methods.base import output_of, spread
from mast.methods.parts import OperatorPrediction, changing
from mast.methods.simclr import SimCLR, SimCLRConfig
from mast.methods.vicreg import VICReg, VICRegConfig
from mast.models import MLP, Encoder, MLPConfig
from mast.models.masks import ExemptBlocks
from mast.recipes import RECIPES, recipe

HIDDEN = 64  # of the network that reads what the operators did


@dataclass
class BlockConfig(VICRegConfig):
    """VICReg whose invariance leaves out a block of the embedding.

    Attributes:
        block: E.
    """

    limits: ClassVar = {"block": "[0, inf)"}
    block: int = 16


class Block(VICReg):
    """The last E of D dimensions are a block with a projector of its own."""

    config: BlockConfig

    def build(self) -> None:
        super().build()
        config = self.config
        dim = config.projector.dim - config.block
        self.projector = MLP(self.encoder.dim, replace(config.projector, dim=dim))

    def block(self, features: int) -> MLP:
        """From what the block reads to (B, E)."""
        sizes = MLPConfig(self.config.projector.hidden // 2, self.config.block)
        return MLP(features, sizes)

    def terms(
        self,
        common: Sequence[Tensor],
        blocks: Sequence[Tensor],
        agreement: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """VICReg's terms; a block that must agree too weighs as its dimensions do.

        Args:
            common: The first D - E dimensions of both views.
            blocks: The others.
            agreement: How little the blocks agree, as `invariance`; None if they need not.
        """
        config, distance = self.config, invariance(*common)
        whole = [torch.cat(parts, dim=1) for parts in zip(common, blocks, strict=True)]
        if agreement is not None:
            share = config.block / whole[0].shape[1]
            distance = (1 - share) * distance + share * agreement
        hinge = sum(map(variance, whole), whole[0].new_zeros(())) / 2
        terms = {
            "invariance": config.invariance_weight * distance,
            "variance": config.variance_weight * hinge,
            "covariance": config.covariance_weight * sum(map(covariance, whole), 0 * hinge),
        }
        stds = (each[0].std(0).mean() for each in (whole, blocks))
        own = dict(zip(("embedding_std", "block_std"), stds, strict=True))
        return output_of(terms, unmasked_distance=distance, **own)


# ------------------------------------------------------------------------------- L: by depth


def shallow(encoder: Encoder) -> int:
    """F."""
    return sum(stage["num_chs"] for stage in encoder.model.feature_info[:-1])


def by_depth(encoder: Encoder, images: Images) -> tuple[list[Tensor], list[Tensor]]:
    """Of each view, its representation and the pooled maps of all shallower depths, (B, F)."""
    both, depths = [], []
    for images_BCHW in images:
        last, maps = encoder.model.forward_intermediates((images_BCHW - encoder.mean) / encoder.std)
        both.append(encoder.model.forward_head(last, pre_logits=True))
        pooled = [map_BCHW.float().mean(dim=(2, 3)) for map_BCHW in maps[:-1]]
        depths.append(torch.cat(pooled, dim=1))
    return both, depths


@dataclass
class ByDepthConfig(BlockConfig):
    """VICReg with heads that read shallower depths."""


class ByDepth(Block):
    """Heads, and the block if E > 0, read shallower depths; invariance is asked of the last map.

    Reference:
        SER (arXiv 2603.06693): the equivariant part reads an earlier layer.
    """

    def build(self) -> None:
        super().build()
        config = self.config
        features, names = shallow(self.encoder), changing(self.operators, config.predicted)
        if config.block:
            self.of_block = self.block(features)
            self.block_prediction = OperatorPrediction(
                config.prediction, config.block, names, "block"
            )
        self.prediction = OperatorPrediction(config.prediction, features, names, "depths")

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        both, depths = by_depth(self.encoder, images)
        common = [self.projector(x_BC) for x_BC in both]
        if self.config.block:
            blocks = [self.of_block(x_BF) for x_BF in depths]
            output = self.terms(common, blocks)
            output = self.block_prediction.add_to(output, blocks, inputs)
        else:
            output = self.objective(*common)
        return self.prediction.add_to(output, depths, inputs)


# -------------------------------------------------------------------------- N: masked contrast


@dataclass
class MaskedContrastConfig(SimCLRConfig):
    """SimCLR in the subspace of each anchor.

    Attributes:
        exempt: Properties that keep a block each.
        exempt_share: Share of the dimensions in each block.
    """

    exempt: tuple[str, ...] = ("color",)
    exempt_share: float = 0.1


class MaskedContrast(SimCLR):
    """Each anchor is compared where the operators that acted on it want invariance."""

    config: MaskedContrastConfig

    def build(self) -> None:
        super().build()
        config, operators = self.config, self.operators
        members = [changing(operators, (name,)) for name in config.exempt]
        group_of = {name: group for group, names in enumerate(members) for name in names}
        self.masks = ExemptBlocks(
            config.projector.dim, [group_of.get(name) for name in operators], config.exempt_share
        )

    def host_inputs(self, views: Views, progress: float) -> dict[str, Tensor]:
        return {"active_BK": views.active_BK, **super().host_inputs(views, progress)}

    def read(self, images: Images) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """The representations, and what the heads read."""
        both = [self.encoder(images_BCHW) for images_BCHW in images]
        return both, both

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        both, read = self.read(images)
        z_ND = torch.cat([self.projector(x_BC) for x_BC in both])  # N = 2 B
        acted_BK = inputs["active_BK"].to(z_ND.dtype)
        weight_BD = 1 - (acted_BK @ (1 - self.masks()).T).clamp(max=1)
        weight_ND = torch.cat([weight_BD, weight_BD])
        weighted_ND = F.normalize(weight_ND * z_ND, dim=1)
        length_NN = (weight_ND @ z_ND.square().T).clamp(min=1e-12).sqrt()
        cosine_NN = weighted_ND @ z_ND.T / length_NN
        count = len(z_ND)
        partner_N = torch.arange(count, device=z_ND.device).roll(count // 2)
        positive_N = cosine_NN.gather(1, partner_N[:, None]).squeeze(1)
        own_NN = torch.eye(count, dtype=torch.bool, device=z_ND.device)
        own_NN = own_NN.scatter(1, partner_N[:, None], True)
        negative_NN = cosine_NN.masked_fill(own_NN, -torch.inf)
        loss = contrast(positive_N, negative_NN, self.config.temperature)
        output = output_of({"contrast": loss}, spread=spread(z_ND))
        return self.prediction.add_to(output, read, inputs)


@dataclass
class ContrastByDepthConfig(MaskedContrastConfig):
    """Masked contrast with heads that read shallower depths; with nothing exempt, SimCLR."""


class ContrastByDepth(MaskedContrast):
    """Heads read shallower depths."""

    def build(self) -> None:
        super().build()
        config, operators = self.config, self.operators
        features, names = shallow(self.encoder), changing(operators, config.predicted)
        self.prediction = OperatorPrediction(config.prediction, features, names, "depths")

    def read(self, images: Images) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        return by_depth(self.encoder, images)


# ----------------------------------------------------------- C, CASSLE, Q: what was done is known


def acted(views: Views) -> Iterator[Tensor]:
    """What the operators did to each view, (B, T): their effects, and whether they acted."""
    aspect_B = torch.ones(len(views.images[0])) if views.aspect_B is None else views.aspect_B
    for record in views.records:
        parts = []
        for name in record.names:
            applied_B1 = record.applied(name)[:, None].float()
            effect_BT = OPERATORS[name].effect(record.parameters[name], aspect_B).float()
            parts += [effect_BT * applied_B1, applied_B1]
        yield torch.cat(parts, dim=1).cpu()


def known(operators: Sequence[str]) -> int:
    """T."""
    drawn = (OPERATORS[name](size=32).sample(1, torch.Generator()) for name in operators)
    one_B = torch.ones(1)
    return sum(
        1 + OPERATORS[name].effect(parameters, one_B).shape[1]
        for name, parameters in zip(operators, drawn, strict=True)
    )


class Informed(Block):
    """A method that knows what was done to each view, T standardized numbers."""

    def build(self) -> None:
        super().build()
        self.numbers = known(self.operators)
        self.standardize = nn.BatchNorm1d(self.numbers, affine=False)

    def host_inputs(self, views: Views, progress: float) -> dict[str, Tensor]:
        own = {f"acted_{view}": acted_BT for view, acted_BT in enumerate(acted(views))}
        return {**own, **super().host_inputs(views, progress)}

    def acted(self, inputs: HostInputs) -> list[Tensor]:
        """Of both views, (B, T)."""
        return [self.standardize(inputs[f"acted_{view}"]) for view in range(2)]

    def reader(self) -> nn.Sequential:
        """From these numbers to (B, HIDDEN)."""
        return nn.Sequential(nn.Linear(self.numbers, HIDDEN), nn.ReLU())


@dataclass
class ConditionedConfig(BlockConfig):
    """VICReg with a block that knows what was done to its view."""


class Conditioned(Informed):
    """The block of two views agrees: it may hold what an operator changed, as each knows of it."""

    def build(self) -> None:
        super().build()
        self.read = self.reader()
        self.of_block = self.block(self.encoder.dim + HIDDEN)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        both = [self.encoder(images_BCHW) for images_BCHW in images]
        blocks = [
            self.of_block(torch.cat([x_BC, self.read(acted_BT)], dim=1))
            for x_BC, acted_BT in zip(both, self.acted(inputs), strict=True)
        ]
        common = [self.projector(x_BC) for x_BC in both]
        output = self.terms(common, blocks, invariance(*blocks))
        return self.prediction.add_to(output, both, inputs)


@dataclass
class CassleConfig(BlockConfig):
    """VICReg with a projector that knows what was done to its view."""


class Cassle(Informed):
    """Przewiezlikowski et al.: Augmentation-aware Self-supervised Learning (2023), over VICReg."""

    def build(self) -> None:
        super().build()
        self.read = self.reader()
        self.projector = MLP(self.encoder.dim + HIDDEN, self.config.projector)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        both = [self.encoder(images_BCHW) for images_BCHW in images]
        embeddings = [
            self.projector(torch.cat([x_BC, self.read(acted_BT)], dim=1))
            for x_BC, acted_BT in zip(both, self.acted(inputs), strict=True)
        ]
        return self.prediction.add_to(self.objective(*embeddings), both, inputs)

    def embed(self, images_BCHW: Tensor) -> Tensor:
        """Of a view that is as its projector expects on average."""
        x_BC = self.encoder(images_BCHW)
        nothing = self.read(x_BC.new_zeros(len(x_BC), self.numbers))
        embedding_BD: Tensor = self.projector(torch.cat([x_BC, nothing], dim=1))
        return embedding_BD


@dataclass
class EquivariantConfig(BlockConfig):
    """VICReg with a block that moves with what was done."""


class Equivariant(Informed):
    """A network moves the block of one view to that of the other, as it knows what was done."""

    def build(self) -> None:
        super().build()
        self.of_block = self.block(self.encoder.dim)
        sizes = MLPConfig(4 * HIDDEN, self.config.block)
        self.move = MLP(self.config.block + 2 * self.numbers, sizes, layers=2, bias=True)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        both = [self.encoder(images_BCHW) for images_BCHW in images]
        first_BE, second_BE = blocks = [self.of_block(x_BC) for x_BC in both]
        first_BT, second_BT = self.acted(inputs)
        there = first_BE + self.move(torch.cat([first_BE, first_BT, second_BT], dim=1))
        back = second_BE + self.move(torch.cat([second_BE, second_BT, first_BT], dim=1))
        moved = (invariance(there, second_BE) + invariance(back, first_BE)) / 2
        common = [self.projector(x_BC) for x_BC in both]
        output = self.terms(common, blocks, moved)
        return self.prediction.add_to(output, both, inputs)


# ------------------------------------------------------------------------------ R: routed masks


@dataclass
class RoutedConfig(VICRegConfig):
    """VICReg in J subspaces between which each image is routed.

    Attributes:
        subspaces: J; they divide D.
        balance_weight: Of the divergence of the mean route from the uniform one.
    """

    limits: ClassVar = {"subspaces": "[2, inf)"}
    subspaces: int = 8
    balance_weight: float = 1.0


class Routed(VICReg):
    """A softmax over heads, of the representation, says where the two views must agree.

    Reference:
        STAR (YonseiML/star), of which this keeps the routing alone.
    """

    config: RoutedConfig

    def build(self) -> None:
        super().build()
        self.route = nn.Linear(self.encoder.dim, self.config.subspaces)

    def step(self, images: Images, inputs: HostInputs, progress: float) -> dict[str, Tensor]:
        both, config = [self.encoder(images_BCHW) for images_BCHW in images], self.config
        first_BD, second_BD = (self.projector(x_BC) for x_BC in both)
        share_BJ = torch.stack([self.route(x).float().softmax(dim=1) for x in both]).mean(dim=0)
        distance_BJ = (
            (first_BD - second_BD).square().unflatten(1, (config.subspaces, -1)).mean(dim=2)
        )
        mean_J = share_BJ.mean(dim=0)
        hinge = (variance(first_BD) + variance(second_BD)) / 2
        terms = {
            "routed": config.invariance_weight * (share_BJ * distance_BJ).sum(dim=1).mean(),
            "balance": config.balance_weight * (mean_J * (mean_J * config.subspaces).log()).sum(),
            "variance": config.variance_weight * hinge,
            "covariance": config.covariance_weight * (covariance(first_BD) + covariance(second_BD)),
        }
        entropy = -(share_BJ * share_BJ.log()).sum(dim=1).mean()
        output = output_of(terms, route_entropy=entropy, embedding_std=first_BD.std(0).mean())
        return self.prediction.add_to(output, both, inputs)


# ------------------------------------------------------------------------------------ registered

CANDIDATES = {
    "by_depth": MethodEntry("Heads by depth", ByDepthConfig, ByDepth),
    "masked_contrast": MethodEntry("Masked contrast", MaskedContrastConfig, MaskedContrast),
    "contrast_by_depth": MethodEntry(
        "Masked contrast, heads by depth", ContrastByDepthConfig, ContrastByDepth
    ),
    "conditioned": MethodEntry("Conditioned block", ConditionedConfig, Conditioned),
    "cassle": MethodEntry("CASSLE over VICReg", CassleConfig, Cassle),
    "equivariant": MethodEntry("Equivariant block", EquivariantConfig, Equivariant),
    "routed": MethodEntry("Routed subspaces", RoutedConfig, Routed),
}


def candidate(name: str) -> PretrainConfig:
    """The recipe of a candidate: sizes and weights of VICReg or SimCLR."""
    own = CANDIDATES[name].config
    base = recipe("simclr_small" if issubclass(own, SimCLRConfig) else "vicreg5_small")
    shared = {each.name: getattr(base.objective, each.name) for each in fields(base.objective)}
    return replace(base, recipe=f"{name}_small", objective=own(**shared))


def register() -> None:
    """Add the candidates to the methods and recipes."""
    for name, entry in CANDIDATES.items():
        METHODS[name] = entry
        RECIPES[f"{name}_small"] = partial(candidate, name)
