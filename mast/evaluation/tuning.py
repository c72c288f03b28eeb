"""Fine-tuning: the encoder is trained further on labelled views, together with a linear head.

B images per batch, D dimensions of the representation, C classes, N images in the pool, M in the
test set.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from mast.augment import PRESETS
from mast.augment.presets import Preset
from mast.core.compute import Compute
from mast.core.errors import UserError, unknown
from mast.core.loop import Losses, Training
from mast.core.optim import OptimizerConfig, make_optimizer, to_zero
from mast.core.seeds import forked, seed_global
from mast.data.canvas import CanvasSet
from mast.encoders.extract import extract
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData, Task
from mast.evaluation.settings import Ranged
from mast.evaluation.training_views import CROP_AND_FLIP, LabelledBatch, TrainingViews
from mast.models import Encoder
from mast.models.sync_batchnorm import synchronise_batchnorm

PRESENT = 0.2  # share of an image from which a class that was mixed in is in it


@dataclass(frozen=True, kw_only=True)
class Recipe(Ranged):
    """Settings of fine-tuning.

    Args:
        optimizer: "sgd" with momentum .9, or "lamb".
        encoder_lr: Peak rate of the encoder, at `batch_size`; not scaled with it.
        head_lr: Peak rate of the head.
        batch_size: Images of a step, over all processes.
        epochs: Passes over the images.
        warmup: Epochs of a linear warm-up before the cosine.
        weight_decay: Of weights; biases and norms have none.
        size: Side of the training views in pixels; None: that of the test views.
        views: "crop_and_flip", or a preset of augmentations such as "mast15".
        compose: Number of random operators of the preset per image, in addition to crop and
            flip; None applies each with its own probability.
        mixup: α of Beta(α, α), from which a batch's mixing weight is drawn; 0 for no mixup.
        cutmix: The same of CutMix; where both are on, each has half of the batches.
        loss: "cross_entropy" over the classes, or "binary": each class against the rest.
    """

    limits: ClassVar = {
        **dict.fromkeys(("epochs", "size", "head_lr"), "(0, inf)"), "batch_size": "(1, inf)",
    }  # fmt: skip

    optimizer: Literal["sgd", "lamb"] = "sgd"
    encoder_lr: float = 0.01
    head_lr: float = 0.1
    batch_size: int = 256
    epochs: int = 20
    warmup: float = 0.0
    weight_decay: float = 0.0
    size: int | None = None
    views: str = "crop_and_flip"
    compose: int | None = None
    mixup: float = 0.0
    cutmix: float = 0.0
    loss: Literal["cross_entropy", "binary"] = "cross_entropy"

    def preset(self) -> Preset:
        known = {"crop_and_flip": CROP_AND_FLIP, **PRESETS}
        if self.views not in known:
            raise unknown("views of a recipe", self.views, known)
        return known[self.views]


class Network(nn.Module):
    """A copy of an encoder with a linear head on its representation: (B, 3, H, W) to scores (B, C).

    The head's first weights are N(0, .01²) as in SimCLR's and VICReg's code.
    """

    def __init__(
        self, encoder: nn.Module, dim: int, classes: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder).cpu().requires_grad_()
        self.head = nn.Linear(dim, classes)
        with torch.no_grad():
            self.head.weight.copy_(0.01 * torch.randn(classes, dim, generator=generator))
            self.head.bias.zero_()

    def forward(self, images_BCHW: Tensor) -> Tensor:
        scores_BC: Tensor = self.head(self.encoder(images_BCHW).to(self.head.weight.dtype))
        return scores_BC

    def groups(self, recipe: Recipe) -> list[dict[str, Any]]:
        """Parameter groups for `make_optimizer`: two of the encoder, two of the head."""
        groups: dict[tuple[str, float], list[nn.Parameter]] = {}
        for name, parameter in self.named_parameters():
            kind = "vectors" if parameter.ndim < 2 else "weights"
            rate = recipe.head_lr if name.startswith("head.") else recipe.encoder_lr
            groups.setdefault((kind, rate), []).append(parameter)
        return [
            {"name": kind, "peak_lr": rate, "params": params}
            for (kind, rate), params in groups.items()
        ]


class Tuned(NamedTuple):
    """A network after its training, the side of its test views, and how it is run."""

    network: Network
    size: int
    compute: Compute

    def scores(self, canvas_set: CanvasSet) -> Tensor:
        """Class scores_MC of a set, on the CPU."""
        return extract(self.network, canvas_set, self.size, self.compute)


def tune(
    encoder: FrozenEncoder,
    data: EvaluationData,
    task: Task,
    positions_N: Tensor,
    recipe: Recipe,
    seed: int,
    title: str,
) -> Tuned:
    """Fine-tune a copy of an encoder on some images of the pool; `title` names the training."""
    bench, fabric = encoder.bench, encoder.bench.fabric
    if recipe.size and isinstance(encoder.module, Encoder):
        encoder.module.check_side(recipe.size)
    batch_size = min(recipe.batch_size, len(positions_N))
    if batch_size < 2 * fabric.world_size:
        raise UserError(
            f"{title} has {len(positions_N)} images and batches of {recipe.batch_size} for "
            f"{fabric.world_size} processes; expected two or more for each"
        )
    views = TrainingViews(
        data.pool,
        positions_N,
        recipe.size or data.size,
        batch_size=batch_size,
        seed=seed,
        preset=recipe.preset(),
        compose=recipe.compose,
        whole=True,
        # Mixup computes with the pixels: they are rounded when it has done so.
        dtype=torch.float32 if recipe.mixup > 0 else encoder.compute.dtype,
    )
    dim = encoder.extract(data.train.subset([0]), data.size).shape[1]
    network = Network(encoder.module, dim, len(task.classes), torch.Generator().manual_seed(seed))
    if fabric.world_size > 1:
        synchronise_batchnorm(network, fabric.device)
    config = OptimizerConfig(recipe.optimizer, weight_decay=recipe.weight_decay)
    warmup = min(recipe.warmup / recipe.epochs, 0.5)
    training = Training(
        network,
        make_optimizer(network.groups(recipe), config, recipe.batch_size),
        epochs=recipe.epochs,
        steps_per_epoch=views.steps_per_epoch,
        rate=to_zero(recipe.epochs * views.steps_per_epoch, warmup),
        checkpoint=encoder.unfinished(
            asdict(recipe), data, what=title, seed=seed, positions=positions_N.tolist()
        ),
        advice="Lower encoder_lr and head_lr.",
    )
    labels_N = task.pool_labels_N.to(fabric.device)
    classes = len(task.classes)

    def loss(module: Any, batch: LabelledBatch, step: int, part: int) -> Losses:
        target_BC = F.one_hot(labels_N[batch.positions_B], classes).float()
        images_BCHW, target_BC = mix(batch.images_BCHW, target_BC, recipe, (seed, step))
        each_B = classification_loss(module(images_BCHW), target_BC, recipe.loss)
        return {"loss": each_B.sum() * fabric.world_size / batch.total}

    bench.fit(training, lambda *place: views.epoch(fabric, *place), loss, title, seed)
    return Tuned(network, data.size, encoder.compute)


def classification_loss(scores_BC: Tensor, target_BC: Tensor, loss: str) -> Tensor:
    """The loss of each image, (B,), in float32, for targets whose rows sum to 1.

    "binary" is the mean over classes of each one's binary cross-entropy, for which a class that
    makes up more than `PRESENT` of an image is in it, as in "ResNet strikes back" (Wightman et al.,
    2021, section 2, and timm's recipes).
    """
    if loss == "cross_entropy":
        return F.cross_entropy(scores_BC.float(), target_BC, reduction="none")
    present_BC = (target_BC > PRESENT).float()
    each_BC = F.binary_cross_entropy_with_logits(scores_BC.float(), present_BC, reduction="none")
    return each_BC.mean(dim=1)


def mix(
    images_BCHW: Tensor, target_BC: Tensor, recipe: Recipe, place: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Mix each image of a batch with another by mixup or CutMix; as it is where both are off.

    The draw is a function of `place`, seed and step: the same in all processes.

    Reference:
        Zhang et al., mixup, ICLR 2018; Yun et al., CutMix, ICCV 2019.
    """
    from torchvision.transforms import v2

    kinds = [
        kind(alpha=alpha, num_classes=target_BC.shape[1])
        for kind, alpha in ((v2.MixUp, recipe.mixup), (v2.CutMix, recipe.cutmix))
        if alpha > 0
    ]
    if not kinds:
        return images_BCHW, target_BC
    with forked():  # torchvision draws from the global generator
        seed_global(*place)
        augmentation = kinds[int(torch.randint(len(kinds), ()))]
        # Neighbours are mixed, and a batch comes in the order of the set, which is by class.
        order_B = torch.randperm(len(target_BC)).to(target_BC.device)
        images_BCHW, target_BC = augmentation(images_BCHW[order_B], target_BC[order_B])
    return images_BCHW, target_BC
