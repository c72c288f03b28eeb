"""Finding objects with Faster R-CNN, and their masks with Mask R-CNN: the two recipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from mast.protocols.detection.detectors import Architecture
from mast.protocols.detection.protocol import ObjectProtocol


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
