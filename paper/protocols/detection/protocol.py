"""What the protocols that find objects share: how a detector is trained, and how it is measured.

The encoder is copied, becomes the body of the detector and learns with it; the
original stays as it was.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mast.core.compute import autocast
from mast.core.display import track
from mast.core.errors import UserError
from mast.core.loop import Losses, StepResult, Training
from mast.core.optim import OptimizerConfig, make_optimizer
from mast.core.seeds import forked, seed_global
from mast.core.transfer import to_device
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.intervals import Measured
from mast.evaluation.protocols.evaluator import Evaluator
from mast.models.encoders import evaluating
from mast.models.sync_batchnorm import synchronise_batchnorm
from paper.protocols.detection.average_precision import AveragePrecision, require_tools
from paper.protocols.detection.batches import (
    ObjectBatch,
    TrainingObjects,
    read_image,
    require_masks,
)
from paper.protocols.detection.data import ObjectData
from paper.protocols.detection.detectors import (
    Architecture,
    DetectorConfig,
    build_detector,
)

if TYPE_CHECKING:
    from lightning_fabric import Fabric

TERMS = {  # what torchvision calls its losses, and we
    "loss_objectness": "proposals",
    "loss_rpn_box_reg": "proposal boxes",
    "loss_classifier": "classes",
    "loss_box_reg": "boxes",
    "loss_mask": "masks",
}
PROPOSALS = ("proposals", "proposal boxes")
WARMUP_FROM = 1 / 1000  # of the rate, as in detectron2
SIDES = ("min_sizes", "test_min_size", "max_size", "anchors")  # in pixels
MASK_THRESHOLD = 0.5  # probability from which a pixel belongs to a mask


@dataclass(frozen=True, kw_only=True)
class ObjectProtocol(Evaluator[ObjectData], ABC):
    """What detection and segmentation share.

    Args:
        architecture: "c4" or "fpn"; see `paper.protocols.detection.detectors`.
        iterations: Optimizer steps.
        batch_size: Images in a step, over all processes; they must share it evenly.
        optimizer: "sgd", or "adamw" for sets so small that SGD does not get anywhere.
        lr: Learning rate after the warm-up.
        milestones: Shares of the iterations after which the rate is divided by ten.
        warmup: Iterations in which it rises linearly.
        momentum: Of SGD.
        weight_decay: Of all parameters but those of BatchNorm.
        clip: Largest gradient norm; None for no clipping.
        rpn_weight: Of the two losses of the proposals.
        min_sizes: Short sides in pixels, one of which is drawn for each image in training.
        test_min_size: The short side in testing.
        max_size: What the long side may reach at most.
        flip: Whether half of the images are mirrored in training.
        anchors: Sides of the anchors in pixels of the resized image; "fpn" has one per map.
        regions: Regions of an image that the heads are trained on.
        pyramid: Channels of the maps of "fpn", and of the head that draws masks.
        batchnorm: "train": all BatchNorm learns, over all processes, and the new layers have it
            too; "frozen": the encoder's stays as it is, for batches of few images.
    """

    needs: ClassVar = ObjectData
    limits: ClassVar = dict.fromkeys(
        ("iterations", "batch_size", *SIDES, "regions", "pyramid", "lr", "clip"), "(0, inf)"
    ) | {"milestones": "[0, 1]", "momentum": "[0, 1]"}
    masks: ClassVar[bool]
    name: ClassVar[str]

    architecture: Architecture
    iterations: int
    batch_size: int = 16
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float
    milestones: tuple[float, ...]
    warmup: int
    momentum: float = 0.9
    weight_decay: float = 1e-4
    clip: float | None = None
    rpn_weight: float
    min_sizes: tuple[int, ...]
    test_min_size: int = 800
    max_size: int = 1333
    flip: bool = True
    anchors: tuple[int, ...] = (32, 64, 128, 256, 512)
    regions: int = 512
    pyramid: int = 256
    batchnorm: Literal["train", "frozen"] = "train"

    def run(self, encoder: FrozenEncoder, data: ObjectData) -> Iterator[Measured]:
        require_tools()
        if data.train.categories != data.test.categories:
            raise UserError(
                f"{data.train.name} and {data.test.name} must annotate the same categories; got "
                f"{len(data.train.categories)} and {len(data.test.categories)}, or others in "
                "another order."
            )
        if self.masks:
            require_masks(data.test)
        count = len(data.test)
        for index in track(range(count), f"reading {data.test.name}", count, "images"):
            read_image(data.test, index)  # a broken one is found now, not after days of training
        detector = self.train(encoder, data)
        yield from self.measure(encoder, detector, data)

    def train(
        self,
        encoder: FrozenEncoder,
        data: ObjectData,
        on_step: Callable[[StepResult], object] | None = None,
    ) -> nn.Module:
        """A detector over a copy of the encoder, an `Encoder` over a ResNet, trained on
        `data.train`.
        """
        bench, processes = encoder.bench, encoder.compute.processes
        self._check(processes)
        objects = TrainingObjects(
            data.train, batch_size=self.batch_size, seed=self.seed, masks=self.masks, flip=self.flip
        )
        with forked(encoder.device):
            torch.manual_seed(self.seed)
            detector = build_detector(encoder.module, len(data.train.categories), self._network)
        if self.batchnorm == "train" and processes > 1:
            synchronise_batchnorm(detector, encoder.device)
        training = Training(
            DetectorLoss(detector, self.rpn_weight),
            self._optimizer(detector),
            epochs=1,  # the images come in an endless order
            steps_per_epoch=self.iterations,
            rate=self.rate,
            clip=self.clip,
            checkpoint=encoder.unfinished(self, data),
            advice=f"Lower the learning rate {self.lr} of {self.name}.",
        )
        bench.fit(
            training,
            lambda epoch, start: objects.batches(bench.fabric, start, self.iterations),
            lambda module, batch, step, part: self._loss(module, batch, step, bench.fabric),
            self.name,
            self.seed,
            on_step,
        )
        return detector

    def measure(
        self, encoder: FrozenEncoder, detector: nn.Module, data: ObjectData
    ) -> Iterator[Measured]:
        """The average precision of a trained detector on `data.test`, over all processes."""
        fabric = encoder.bench.fabric
        precision = AveragePrecision(data.test, self.masks)
        detector.transform.min_size = (self.test_min_size,)  # type: ignore[union-attr]
        own = range(fabric.global_rank, len(data.test), fabric.world_size)
        with (
            evaluating(detector),
            torch.inference_mode(),
            autocast(fabric.device, encoder.compute.dtype),
        ):
            for index in track(own, f"objects of {data.test.name}", len(own), "images"):
                image_CHW = to_device(read_image(data.test, index), fabric.device)
                (detections,) = detector([image_CHW.float() / 255])
                if self.masks:  # probabilities (N, 1, H, W)
                    detections["masks"] = detections["masks"][:, 0] >= MASK_THRESHOLD
                precision.add(index, detections)
        yield from precision.measures(fabric)

    def rate(self, progress: float) -> float:
        """The learning rate as a share of its peak, from the share of the run that is done."""
        iteration = round(progress * self.iterations) - 1
        passed = sum(iteration >= share * self.iterations for share in self.milestones)
        rising = min(1.0, iteration / self.warmup) if self.warmup else 1.0
        return float(0.1**passed * (WARMUP_FROM + (1 - WARMUP_FROM) * rising))

    @property
    def _network(self) -> DetectorConfig:
        of = {field.name: getattr(self, field.name) for field in fields(DetectorConfig)}
        return DetectorConfig(**of)

    def _check(self, processes: int) -> None:
        if self.batch_size % processes:
            raise UserError(
                f"{processes} processes cannot share a batch of {self.batch_size} images evenly; "
                f"set batch_size to a multiple of {processes}"
            )

    def _optimizer(self, detector: nn.Module) -> torch.optim.Optimizer:
        norms = {
            parameter
            for module in detector.modules()
            if isinstance(module, _BatchNorm)
            for parameter in module.parameters()
        }
        groups: list[dict[str, Any]] = [
            {"name": name, "peak_lr": self.lr, "params": [
                parameter for parameter in detector.parameters() if (parameter in norms) == is_norm
            ]}
            for name, is_norm in (("weights", False), ("vectors", True))
        ]  # fmt: skip
        config = OptimizerConfig(
            self.optimizer, weight_decay=self.weight_decay, momentum=self.momentum
        )
        return make_optimizer([group for group in groups if group["params"]], config, 256)

    def _loss(self, module: Any, batch: ObjectBatch, step: int, fabric: Fabric) -> Losses:
        # torchvision draws sizes, anchors and regions from PyTorch's generators. Seeding them here
        # makes a step the same after a resumption, on a GPU as well.
        seed_global(self.seed, step, fabric.global_rank)
        losses: Losses = module(batch)
        return losses


@final
@dataclass(frozen=True, kw_only=True)
class Detection(ObjectProtocol):
    """Boxes by Faster R-CNN; the defaults are the recipe of VOC07+12 with R50-C4.

    On COCO, give the settings of `Segmentation` that differ, and architecture "fpn".

    Reference:
        He et al., Momentum Contrast, CVPR 2020, section 4.2, and its `detection/configs`; learning
        rate and weight of the proposals' loss are VICReg's (ICLR 2022, appendix).
    """

    masks: ClassVar[bool] = False
    name: ClassVar[str] = "detection"

    architecture: Architecture = "c4"
    iterations: int = 24_000
    lr: float = 0.1
    milestones: tuple[float, ...] = (18 / 24, 22 / 24)
    warmup: int = 100
    rpn_weight: float = 0.2
    min_sizes: tuple[int, ...] = tuple(range(480, 801, 32))


@final
@dataclass(frozen=True, kw_only=True)
class Segmentation(ObjectProtocol):
    """Boxes and masks by Mask R-CNN with a pyramid; the defaults are COCO's 1x with R50-FPN.

    Reference:
        He et al., Momentum Contrast, CVPR 2020, section 4.2, and detectron2's Base-RCNN-FPN; the
        learning rate is VICReg's (ICLR 2022, appendix).
    """

    masks: ClassVar[bool] = True
    name: ClassVar[str] = "segmentation"

    architecture: Architecture = "fpn"
    iterations: int = 90_000
    lr: float = 0.04
    milestones: tuple[float, ...] = (60 / 90, 80 / 90)
    warmup: int = 1000
    rpn_weight: float = 1.0
    min_sizes: tuple[int, ...] = tuple(range(640, 801, 32))


@final
class DetectorLoss(nn.Module):
    """What a detector is trained on: torchvision's losses, those of the proposals weighted."""

    def __init__(self, detector: nn.Module, rpn_weight: float) -> None:
        super().__init__()
        self.detector = detector
        self.rpn_weight = rpn_weight

    def forward(self, batch: ObjectBatch) -> Losses:
        """The terms as torchvision defines them, and "loss", their weighted sum."""
        images = [image_CHW.float() / 255 for image_CHW in batch.images]
        terms = {TERMS[name]: term for name, term in self.detector(images, batch.targets).items()}
        weights = dict.fromkeys(PROPOSALS, self.rpn_weight)
        total = torch.stack([weights.get(name, 1.0) * term for name, term in terms.items()]).sum()
        return {"loss": total, **terms}
