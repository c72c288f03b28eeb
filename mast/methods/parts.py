"""Parts of methods: teachers, queues, prototypes, random numbers, predictions of operators.

Shapes: B images of this process, D dimensions, N length of a queue or numbers of an image, P
prototypes, T numbers of an operator, H hidden units of a head.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import get_ema_multi_avg_fn

from mast.augment import PROPERTIES, Views, difference, numbers
from mast.core.collectives import gather, global_sum, processes, rank
from mast.core.errors import UserError, unknown
from mast.losses import covariance, unexplained
from mast.methods.collapse import PREDICTED
from mast.models import Encoder
from mast.models.heads import pair_head

Images = tuple[Tensor, ...]  # of every view, images_BCHW
HostInputs = Mapping[str, Tensor]


class Part(nn.Module):
    """A part of a method with hooks of its own, which `Method` calls by default."""

    def host_inputs(self, views: Views, progress: float) -> dict[str, Tensor]:
        """As `Method.host_inputs`."""
        return {}

    def frozen(self, progress: float) -> Iterable[nn.Parameter]:
        """As `Method.frozen`."""
        return ()

    def after_step(self, progress: float) -> None:
        """As `Method.after_step`."""


# ------------------------------------------------------------------------------------ teachers


class Teacher(Part):
    """A moving average of an encoder and its head, without gradients, updated every step.

    Parameters are averaged; BatchNorm has its own statistics, in training mode those of the batch,
    as in the official code of BYOL, MoCo and DINO. Dropout is off.

    Args:
        encoder: The student's.
        head: The student's, from its representation to embeddings.
        momentum: Momentum per step, in [0, 1].
        rises: Whether the momentum rises to 1 over the run.
    """

    def __init__(
        self, encoder: Encoder, head: nn.Module, momentum: float, rises: bool = True
    ) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        self.projector = copy.deepcopy(head)
        self.requires_grad_(False)
        self.momentum, self.rises = momentum, rises
        self._student = (encoder, head)  # a tuple: its parameters are not the teacher's

    def train(self, mode: bool = True) -> Self:
        """Only BatchNorm can be in training mode."""
        super().train(False)
        self.encoder.training = mode  # the images are those of training, whose range is known
        for module in self.modules():
            if isinstance(module, _BatchNorm):
                module.train(mode)
        return self

    @torch.no_grad()
    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Embeddings (B, D)."""
        embedding_BD: Tensor = self.projector(self.encoder(images_BCHW))
        return embedding_BD

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        """Update towards the student."""
        momentum = rising(self.momentum, progress) if self.rises else self.momentum
        student = [weight for part in self._student for weight in part.parameters()]
        get_ema_multi_avg_fn(momentum)([*self.parameters()], student, None)


def rising(momentum: float, progress: float) -> float:
    """A momentum that rises to one over a run, by a half cosine.

    Reference:
        BYOL, section 3.3 ("tau = 1 - (1 - tau_base) (cos(pi k / K) + 1) / 2").
    """
    return 1 - (1 - momentum) * (1 + math.cos(math.pi * progress)) / 2


# ----------------------------------------------------------------------- queues and prototypes


class Queue(nn.Module):
    """A queue of the last embeddings, initially random unit vectors.

    Args:
        length: N.
        dim: D.
        seed: Seed of the initial vectors.

    Reference:
        MoCo (He et al., CVPR 2020), algorithm 1.
    """

    key_ND: Tensor
    next: Tensor

    def __init__(self, length: int, dim: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        start_ND = torch.randn(length, dim, generator=generator)
        self.register_buffer("key_ND", F.normalize(start_ND, dim=1))
        self.register_buffer("next", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, key_BD: Tensor) -> None:
        """Replace the oldest; of more than N the last N stay."""
        length = len(self.key_ND)
        newest = key_BD[-length:]
        places = (self.next + torch.arange(len(newest), device=self.next.device)) % length
        self.key_ND.index_copy_(0, places, newest.to(self.key_ND.dtype))
        self.next.add_(len(newest)).remainder_(length)


class Prototypes(Part):
    """Cosines of embeddings to P learned directions, of unit length after every step.

    Args:
        dim: D.
        count: P.
        frozen: Initial share of the run in which they are frozen.

    Reference:
        SwAV, section 3.1; DINO's last layer with `norm_last_layer`.
    """

    def __init__(self, dim: int, count: int, frozen: float = 0.0) -> None:
        super().__init__()
        self.weight_PD = nn.Parameter(F.normalize(torch.randn(count, dim), dim=1))
        self.frozen_until = frozen

    def forward(self, embedding_BD: Tensor) -> Tensor:
        """Cosines (B, P) in float32 of embeddings of any length."""
        with torch.autocast(embedding_BD.device.type, enabled=False):
            return F.normalize(embedding_BD.float(), dim=1) @ self.weight_PD.T

    def frozen(self, progress: float) -> Iterable[nn.Parameter]:
        """The directions, at first."""
        return (self.weight_PD,) if progress < self.frozen_until else ()

    @torch.no_grad()
    def after_step(self, progress: float) -> None:
        """Bring the directions back to unit length."""
        self.weight_PD.copy_(F.normalize(self.weight_PD, dim=1))


def encode_by_size(network: Callable[[Tensor], Tensor], images: Images) -> Tensor:
    """The outputs of all views in their order, (V B, D).

    Views of one size that follow each other are one batch, and share BatchNorm's statistics.

    Reference:
        `MultiCropWrapper` of DINO's code, and SwAV's before it.
    """
    groups = groupby(images, key=lambda images_BCHW: images_BCHW.shape)
    return torch.cat([network(torch.cat(list(group))) for _, group in groups])


# ------------------------------------------------------------------------------ random numbers


class Drawn(Part):
    """Random numbers that follow from the seed and the progress of a run.

    All processes, and all parts of a batch, draw the same.

    Args:
        seed: Of the run.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def generator(self, progress: float, number: int = 0) -> torch.Generator:
        """A generator of its own for each step and number."""
        text = f"{self.seed} {number} {progress!r}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
        return torch.Generator().manual_seed(seed)

    def get_extra_state(self) -> Tensor:  # what is drawn next does not follow from weights
        return torch.tensor(self.seed)

    def set_extra_state(self, state: Tensor) -> None:
        self.seed = int(state)


class Noise(Drawn):
    """Numbers in [0, 1) for each image, (B, N), as the host inputs "noise_0", "noise_1", …

    Each view has its own; several processes draw what one would.

    Args:
        seed: Of the run.
        count: N.
    """

    def __init__(self, seed: int, count: int) -> None:
        super().__init__(seed)
        self.count = count

    def host_inputs(self, views: Views, progress: float) -> dict[str, Tensor]:
        """The numbers of this process's images."""
        batch, inputs = len(views.images[0]), {}
        for view in range(len(views.images)):
            generator = self.generator(progress, view)
            noise = torch.rand(processes() * batch, self.count, generator=generator)
            inputs[f"noise_{view}"] = noise[rank() * batch :][:batch]
        return inputs


class Directions(Drawn):
    """Random directions (D, S) of unit length, as the host input "direction_DS".

    Args:
        seed: Of the run.
        dim: D.
        count: S.
    """

    def __init__(self, seed: int, dim: int, count: int) -> None:
        super().__init__(seed)
        self.shape = dim, count

    def host_inputs(self, views: Views, progress: float) -> dict[str, Tensor]:
        """New ones at every step."""
        drawn_DS = torch.randn(self.shape, generator=self.generator(progress))
        return {"direction_DS": F.normalize(drawn_DS, dim=0)}


def count_shown(hidden: float, patches: int) -> int:
    """How many patches are shown where this share is hidden."""
    shown = int(patches * (1 - hidden))
    if not 0 < shown < patches:
        raise UserError(f"objective.hidden {hidden} hides {patches - shown} of {patches} patches")
    return shown


# -------------------------------------------------------------------- terms of the global batch


def shared_covariance(*views: Tensor) -> Tensor:
    """The covariance term of all views, summed; each process computes its part of the products.

    Args:
        views: Embeddings of the global batch, the same in every process.
    """
    parts = [covariance(embedding_BD, rank(), processes()) for embedding_BD in views]
    return global_sum(sum(parts[1:], parts[0]))


# ------------------------------------------------------------ predictions of what operators did


@dataclass
class PredictionConfig:
    """Prediction of operator parameters.

    Attributes:
        weight: Weight of each operator's prediction; 0 for none.
        hidden: Width of a head's hidden layer.
    """

    weight: float = 0.5
    hidden: int = 128


class OperatorPrediction(Part):
    """One head per operator, which predicts from both views how its effects on them differ.

    This prevents forgetting: to predict the hue shift between two views, the features must
    represent hue.

    Args:
        config: Weight and width.
        dim: D.
        operators: Operators to predict; without any, the loss does not change.
        source: Input of the heads, for the log.

    Reference:
        AugSelf (Lee et al., NeurIPS 2021): there from the representation of any method.
    """

    def __init__(
        self,
        config: PredictionConfig,
        dim: int,
        operators: Sequence[str],
        source: str = "representation",
    ) -> None:
        super().__init__()
        self.weight = config.weight
        self.source = source
        self.heads = nn.ModuleDict(
            {name: pair_head(dim, config.hidden, numbers(name)) for name in operators}
        )

    def host_inputs(self, views: Views, progress: float) -> dict[str, Tensor]:
        """The targets of the heads, (B, T) by operator."""
        cpu = torch.device("cpu")
        return {_target(name): difference(views, name, cpu) for name in self.heads}

    def forward(
        self, pair: Sequence[Tensor], inputs: HostInputs, part_DP: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The share of each operator's variance that its head leaves unexplained.

        Args:
            pair: Inputs from both views, (B, D) each.
            inputs: From `host_inputs`, on the device.
            part_DP: Weight in [0, 1] of every dimension for each head, in the order of `heads`;
                None for all ones.

        Returns:
            By operator, a scalar: 1 for a head no better than the mean, 0 for a perfect one.
        """
        shares: dict[str, Tensor] = {}
        for index, (name, head) in enumerate(self.heads.items()):
            target_BT = inputs[_target(name)]
            seen = pair if part_DP is None else [x_BD * part_DP[:, index] for x_BD in pair]
            predicted_BT = head(torch.cat([*seen], dim=1))
            shares[name] = unexplained(predicted_BT, target_BT, gather(target_BT))
        return shares

    def add_to(
        self,
        output: dict[str, Tensor],
        pair: Sequence[Tensor],
        inputs: HostInputs,
        part_DP: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """What `Method.step` returns, with the prediction added to its terms."""
        if not self.heads:
            return output
        shares = self(pair, inputs, part_DP)
        term = self.weight * sum(shares.values(), output["loss"].new_zeros(()))
        return {
            **output,
            "loss": output["loss"] + term,
            f"term/prediction_by_{self.source}": term.detach(),
            **{
                f"{PREDICTED}{self.source}_{name}": 1 - share.detach()
                for name, share in shares.items()
            },
        }


def _target(operator: str) -> str:
    """The name of an operator's target among the host inputs."""
    return f"difference_of_{operator}"


def changing(operators: Sequence[str], properties: Sequence[str]) -> tuple[str, ...]:
    """The operators that change one of some properties of an image, in their own order."""
    check_properties(properties)
    own = {name for changed in properties for name in PROPERTIES[changed]}
    return tuple(name for name in operators if name in own)


def check_properties(properties: Sequence[str]) -> None:
    """Refuse what no operator changes, and what is named twice."""
    for name in properties:
        if name not in PROPERTIES:
            raise unknown("property that operators change", name, PROPERTIES)
    if len(set(properties)) < len(properties):
        raise UserError(f"a property is named twice: {', '.join(properties)}")
